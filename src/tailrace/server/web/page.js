// The entry of the page: the address says what is opened.

import { openConversation } from "./conversation/conversation.js";

openConversation();
