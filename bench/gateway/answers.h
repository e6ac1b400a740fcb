/* What the provider says: the events of both dialects, rendered into a stream's outgoing buffer. */
#include "common.h"

#define CREATED 1700000000
#define HEAD "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

struct buffer {
    char *data;
    size_t length, room;
};

struct stream {
    int fd; /* -1: the connection is gone, and the loop that takes the stream from a queue frees it */
    int responses, usage, waiting_for_room, queued, sliced;
    int tokens, sent;
    int64_t period_ns, due_ns;
    struct buffer in, out, text;
    size_t written;
    struct stream *next;
};

static void append(struct buffer *to, const char *data, size_t length) {
    if (to->length + length > to->room) {
        to->room = (to->length + length) * 2;
        if (!(to->data = realloc(to->data, to->room)))
            die("no memory");
    }
    memcpy(to->data + to->length, data, length);
    to->length += length;
}

/* One SSE event, as one HTTP chunk. */
static void event(struct stream *s, const char *name, const char *data, size_t length) {
    char head[96], line[64] = "";
    if (name)
        snprintf(line, sizeof line, "event: %s\n", name);
    size_t size = strlen(line) + 6 + length + 2;
    append(&s->out, head, (size_t)snprintf(head, sizeof head, "%zx\r\n%sdata: ", size, line));
    append(&s->out, data, length);
    append(&s->out, "\n\n\r\n", 4);
}

static void chat_chunk(struct stream *s, const char *choices, const char *usage) {
    char data[512];
    int length = snprintf(data, sizeof data,
                          "{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":%d,\"model\":"
                          "\"bench\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_bench\",\"choices\":[%s]%s}",
                          CREATED, choices, usage);
    event(s, NULL, data, (size_t)length);
}

static void chat_piece(struct stream *s, const char *delta, const char *finish) {
    char choice[160];
    snprintf(choice, sizeof choice, "{\"index\":0,\"delta\":%s,\"logprobs\":null,\"finish_reason\":%s}", delta, finish);
    chat_chunk(s, choice, s->usage ? ",\"usage\":null" : "");
}

static int sequence; /* of the events of a Responses stream: `sequence_number` need only grow */

/* An event of a Responses stream: its fields before the text, the text, the fields after it. */
static void responses_event(struct stream *s, const char *name, const char *before, const char *text, size_t length,
                            const char *after) {
    static struct buffer data;
    char head[128];
    data.length = 0;
    append(&data, head, (size_t)snprintf(head, sizeof head, "{\"type\":\"%s\",\"sequence_number\":%d,", name, sequence++));
    append(&data, before, strlen(before));
    append(&data, text, length);
    append(&data, after, strlen(after));
    append(&data, "}", 1);
    event(s, name, data.data, data.length);
}

#define AT "\"item_id\":\"msg_bench\",\"output_index\":0,\"content_index\":0,"
#define RESPONSE(status, output) \
    "\"response\":{\"id\":\"resp_bench\",\"object\":\"response\",\"created_at\":1700000000,\"status\":\"" status \
    "\",\"error\":null,\"model\":\"bench\",\"output\":[" output
#define ITEM(status) "{\"id\":\"msg_bench\",\"type\":\"message\",\"role\":\"assistant\",\"status\":\"" status "\",\"content\":["
#define TEXT "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":\""

static void begin(struct stream *s) {
    append(&s->out, HEAD, sizeof HEAD - 1);
    if (!s->responses) {
        chat_piece(s, "{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}", "null");
        return;
    }
    responses_event(s, "response.created", RESPONSE("in_progress", ""), "", 0, "],\"usage\":null}");
    responses_event(s, "response.in_progress", RESPONSE("in_progress", ""), "", 0, "],\"usage\":null}");
    responses_event(s, "response.output_item.added", "\"output_index\":0,\"item\":" ITEM("in_progress"), "", 0, "]}");
    responses_event(s, "response.content_part.added", AT "\"part\":" TEXT, "", 0, "\"}");
}

static void say_token(struct stream *s) {
    char token[TOKEN_BYTES], delta[32];
    put_token(token, s->sent++, now_ns());
    if (s->responses) {
        append(&s->text, token, TOKEN_BYTES);
        responses_event(s, "response.output_text.delta", AT "\"delta\":\"", token, TOKEN_BYTES, "\",\"logprobs\":[]");
        return;
    }
    snprintf(delta, sizeof delta, "{\"content\":\"%.12s\"}", token);
    chat_piece(s, delta, "null");
}

static void end(struct stream *s) {
    char usage[320];
    if (s->responses) {
        const char *text = s->text.data;
        size_t length = s->text.length;
        snprintf(usage, sizeof usage,
                 "\"}]}],\"usage\":{\"input_tokens\":9,\"input_tokens_details\":{\"cached_tokens\":0},\"output_tokens\":%d,"
                 "\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":%d}}", s->tokens, s->tokens + 9);
        responses_event(s, "response.output_text.done", AT "\"logprobs\":[],\"text\":\"", text, length, "\"");
        responses_event(s, "response.content_part.done", AT "\"part\":" TEXT, text, length, "\"}");
        responses_event(s, "response.output_item.done", "\"output_index\":0,\"item\":" ITEM("completed") TEXT, text, length, "\"}]}");
        responses_event(s, "response.completed", RESPONSE("completed", ITEM("completed") TEXT), text, length, usage);
    } else {
        chat_piece(s, "{}", "\"stop\"");
        if (s->usage) {
            snprintf(usage, sizeof usage, ",\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":%d,\"total_tokens\":%d}",
                     s->tokens, s->tokens + 9);
            chat_chunk(s, "", usage);
        }
        event(s, NULL, "[DONE]", 6);
    }
    append(&s->out, "0\r\n\r\n", 5);
    s->text.length = 0;
}

#define SLICE 10000 /* tokens of a long answer that are in memory at once */

static void say_slice(struct stream *s) {
    for (int i = 0; i < SLICE && s->sent < s->tokens; i++)
        say_token(s);
    if (s->sent == s->tokens)
        end(s);
    s->sliced = s->sent < s->tokens;
}

/* Answers that come at once are rendered once: rendering takes longer than most of the programs that are measured. */
static void said_at_once(struct stream *s, int ends) {
    static struct rendered {
        int tokens, responses, usage, ends;
        struct buffer bytes;
    } known[16];
    if (s->tokens > SLICE) {
        begin(s);
        say_slice(s); /* `flush` says the next ones when these are written */
        return;
    }
    struct rendered *r = known;
    while (r->tokens && (r->tokens != s->tokens || r->responses != s->responses || r->usage != s->usage || r->ends != ends))
        if (++r == known + 16)
            exit(2);
    if (!r->tokens) {
        size_t from = s->out.length;
        begin(s);
        while (s->sent < s->tokens)
            say_token(s);
        if (ends)
            end(s);
        *r = (struct rendered){s->tokens, s->responses, s->usage, ends, {0}};
        append(&r->bytes, s->out.data + from, s->out.length - from);
    } else {
        append(&s->out, r->bytes.data, r->bytes.length);
    }
}
