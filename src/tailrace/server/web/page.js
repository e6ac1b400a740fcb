// The entry of the page: the address says what is opened.

import { openConversation } from "./conversation/conversation.js";

if (new URLSearchParams(location.search).has("run")) import("./inspector/inspector.js").then((module) => module.openInspector());
else openConversation();
