// The entry of the page: the address says what is opened.

import { startInbox } from "./approvals/inbox.js";
import { openConversation } from "./conversation/conversation.js";

openConversation();
startInbox();
