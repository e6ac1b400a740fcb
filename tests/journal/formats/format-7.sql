-- A journal as the Tailrace that wrote format 7 left it.
PRAGMA application_id = 2047953614;
PRAGMA user_version = 7;
CREATE TABLE runs (
num INTEGER PRIMARY KEY,
id TEXT NOT NULL UNIQUE,
kind TEXT NOT NULL,
session TEXT NOT NULL,
idempotency_key TEXT UNIQUE,
new BLOB NOT NULL,
created_at REAL NOT NULL
)
;
CREATE INDEX runs_by_session ON runs (session, id)
;
CREATE TABLE heads (
num INTEGER PRIMARY KEY REFERENCES runs,
state TEXT NOT NULL,
epoch INTEGER NOT NULL,
kills INTEGER NOT NULL,
owner TEXT NOT NULL,
bell TEXT NOT NULL,
lease_until REAL NOT NULL,
first_seq INTEGER NOT NULL,
last_seq INTEGER,
ended_at REAL,
outcome BLOB
, output_seqs BLOB, claimed_seq INTEGER NOT NULL DEFAULT 0)
;
CREATE INDEX heads_unfinished ON heads (num) WHERE ended_at IS NULL
;
CREATE INDEX heads_ended ON heads (ended_at) WHERE ended_at IS NOT NULL
;
CREATE TABLE batches (
id INTEGER PRIMARY KEY,
run INTEGER NOT NULL REFERENCES runs,
first_seq INTEGER NOT NULL,
last_seq INTEGER NOT NULL,
attempt INTEGER NOT NULL,
crc INTEGER NOT NULL,
events BLOB NOT NULL
, at REAL)
;
CREATE TABLE snapshots (
run INTEGER PRIMARY KEY REFERENCES runs,
seq INTEGER NOT NULL,
attempt INTEGER NOT NULL,
crc INTEGER NOT NULL,
state BLOB NOT NULL
)
;
CREATE TABLE signals (
id INTEGER PRIMARY KEY AUTOINCREMENT,
run INTEGER NOT NULL REFERENCES runs,
name TEXT NOT NULL,
payload BLOB NOT NULL,
sender TEXT NOT NULL
)
;
CREATE INDEX signals_by_run ON signals (run, id)
;
CREATE TABLE key_values (
namespace TEXT NOT NULL,
key TEXT NOT NULL,
value BLOB NOT NULL,
PRIMARY KEY (namespace, key)
) WITHOUT ROWID

;
CREATE INDEX runs_by_kind ON runs (kind, session, id)
;
CREATE TABLE counters (
name TEXT PRIMARY KEY,
value REAL NOT NULL
) WITHOUT ROWID

;
CREATE TABLE places (
run INTEGER NOT NULL,
first_seq INTEGER NOT NULL,
id INTEGER NOT NULL,
PRIMARY KEY (run, first_seq)
) WITHOUT ROWID
;
CREATE TABLE indexed (
one INTEGER PRIMARY KEY,
upto INTEGER NOT NULL
)
;
CREATE TRIGGER batches_removed AFTER DELETE ON batches WHEN OLD.id <= (SELECT upto FROM indexed) BEGIN
DELETE FROM places WHERE run = OLD.run AND first_seq = OLD.first_seq AND id = OLD.id;
UPDATE indexed SET upto = (SELECT coalesce(max(id), 0) FROM batches WHERE id < OLD.id)
WHERE upto = OLD.id;
END
;
INSERT INTO runs VALUES (1, 'run_06605e82cfa0984847399ef3', 'agent', 's', 'ended', CAST('{"kind":"agent","input":{"text":"ended"},"model":"fake/m","session":"s","idempotency_key":"ended","durability":"committed","deadline_at":null}' AS BLOB), 1794808898.1014001);
INSERT INTO runs VALUES (2, 'run_06605e82cfcd16a3b0d6ebe8', 'agent', 's', 'compacted', CAST('{"kind":"agent","input":{"text":"compacted"},"model":"fake/m","session":"s","idempotency_key":"compacted","durability":"committed","deadline_at":null}' AS BLOB), 1794808898.1127906);
INSERT INTO runs VALUES (3, 'run_06605e82cfed026ee55fd4b4', 'sequence', '', NULL, CAST('{"kind":"sequence","input":{"blocks":[]},"model":"","session":"","idempotency_key":"","durability":"committed","deadline_at":null}' AS BLOB), 1794808898.1209621);
INSERT INTO runs VALUES (4, 'run_06605e82cff58f21b580fa75', 'agent', '', NULL, CAST('{"kind":"agent","input":{"text":"parked"},"model":"","session":"","idempotency_key":"","durability":"committed","deadline_at":null}' AS BLOB), 1794808898.1231518);
INSERT INTO runs VALUES (5, 'run_06605e82cffad75c1c34fe17', 'agent', 't', NULL, CAST('{"kind":"agent","input":{"text":"unfinished"},"model":"","session":"t","idempotency_key":"","durability":"committed","deadline_at":null}' AS BLOB), 1794808898.1245039);
INSERT INTO heads VALUES (1, 'completed', 1, 0, '', '', 0.0, 1, 21, 1794808898.1119313, CAST('{"type":"run_finished","status":"completed","output":"Done.","usage":{"input_tokens":3,"output_tokens":5},"error":null,"at":0.0,"spent":[{"provider":"","model":"","usage":{"input_tokens":3,"output_tokens":5}}]}' AS BLOB), NULL, 0);
INSERT INTO heads VALUES (2, 'completed', 1, 0, '', '', 0.0, 21, 21, 1794808898.116151, CAST('{"type":"run_finished","status":"completed","output":"Done.","usage":{"input_tokens":3,"output_tokens":5},"error":null,"at":0.0,"spent":[{"provider":"","model":"","usage":{"input_tokens":3,"output_tokens":5}}]}' AS BLOB), NULL, 0);
INSERT INTO heads VALUES (3, 'completed', 1, 0, '', '', 0.0, 1, 6, 1794808898.1226704, CAST('{"type":"run_finished","status":"completed","output":"","usage":{},"error":null,"at":0.0}' AS BLOB), CAST('[4,5]' AS BLOB), 0);
INSERT INTO heads VALUES (4, 'parked', 1, 0, '', '', 0.0, 1, NULL, NULL, CAST('{"kind":"crash_loop","message":"it kept dying"}' AS BLOB), NULL, 0);
INSERT INTO heads VALUES (5, 'pending', 1, 0, '', '', 0.0, 1, NULL, NULL, NULL, NULL, 0);
INSERT INTO batches VALUES (1, 1, 1, 1, 1, 1089792584, CAST('{"type":"run_started","kind":"agent","model":"fake/m","session":"s","at":1794808898.1014001}
' AS BLOB), 1794808898.1014001);
INSERT INTO batches VALUES (2, 1, 2, 3, 1, 1566184200, CAST('{"type":"attempt_started","provider":"fake","model":"m"}
{"type":"message_chunk","text":"lost "}
' AS BLOB), 1794808898.1085677);
INSERT INTO batches VALUES (3, 1, 4, 5, 1, 739762124, CAST('{"type":"attempt_discarded","reason":"stall"}
{"type":"attempt_started","provider":"fake","model":"m"}
' AS BLOB), 1794808898.1091955);
INSERT INTO batches VALUES (4, 1, 6, 9, 2, 970166392, CAST('{"type":"reasoning_chunk","text":"hm"}
{"type":"message_chunk","text":"I look: "}
{"type":"message_chunk","text":"“ä”\n"}
{"type":"message_stop","final":false}
' AS BLOB), 1794808898.1096766);
INSERT INTO batches VALUES (5, 1, 10, 11, 2, 1650092951, CAST('{"type":"approval_asked","approval_id":"a1","tool_name":"terminal","command":"ls","digest":"d1","requester":"me","call_id":"call_1","reason":"why","directory":"","session":"","asked_at":0.0,"expires_at":0.0}
{"type":"approval_answered","approval_id":"a1","decision":"once","by":"","reason":""}
' AS BLOB), 1794808898.1101897);
INSERT INTO batches VALUES (6, 1, 12, 14, 2, 1221846606, CAST('{"type":"tool_call_chunk","tool_name":"terminal","preview":"ls","args":{"command":"ls"},"index":0}
{"type":"long_tool_hint","tool_name":"terminal","duration":9.0}
{"type":"tool_call_finished","tool_name":"terminal","duration":9.5,"ok":true,"index":0}
' AS BLOB), 1794808898.1106417);
INSERT INTO batches VALUES (7, 1, 15, 16, 2, 3340590381, CAST('{"type":"tool_output_recorded","call_id":"call_1","tool_name":"terminal","output":"a file","ok":true,"files":[],"not_executed":null,"change":null}
{"type":"gateway_notice","kind":"flood","text":"slow","extra":{}}
' AS BLOB), 1794808898.1110387);
INSERT INTO batches VALUES (8, 1, 17, 20, 2, 1647331742, CAST('{"type":"message_chunk","text":"Done."}
{"type":"message_stop","final":true}
{"type":"message_recorded","message":{"role":"assistant","parts":[{"type":"text","text":"Done."}]},"stop":"end"}
{"type":"usage_recorded","usage":{"input_tokens":3,"output_tokens":5},"provider":"","model":""}
' AS BLOB), 1794808898.1114886);
INSERT INTO batches VALUES (9, 1, 21, 21, 2, 899741372, CAST('{"type":"run_finished","status":"completed","output":"Done.","usage":{"input_tokens":3,"output_tokens":5},"error":null,"at":0.0,"spent":[{"provider":"","model":"","usage":{"input_tokens":3,"output_tokens":5}}]}
' AS BLOB), 1794808898.1119714);
INSERT INTO batches VALUES (10, 2, 1, 1, 1, 863893009, CAST('{"type":"run_started","kind":"agent","model":"fake/m","session":"s","at":1794808898.1127906}
' AS BLOB), 1794808898.1127906);
INSERT INTO batches VALUES (11, 2, 2, 2, 1, 4272828759, CAST('{"type":"attempt_started","provider":"fake","model":"m"}
' AS BLOB), 1794808898.1136076);
INSERT INTO batches VALUES (12, 2, 4, 5, 1, 739762124, CAST('{"type":"attempt_discarded","reason":"stall"}
{"type":"attempt_started","provider":"fake","model":"m"}
' AS BLOB), 1794808898.1140447);
INSERT INTO batches VALUES (13, 2, 10, 11, 2, 1650092951, CAST('{"type":"approval_asked","approval_id":"a1","tool_name":"terminal","command":"ls","digest":"d1","requester":"me","call_id":"call_1","reason":"why","directory":"","session":"","asked_at":0.0,"expires_at":0.0}
{"type":"approval_answered","approval_id":"a1","decision":"once","by":"","reason":""}
' AS BLOB), 1794808898.1148973);
INSERT INTO batches VALUES (14, 2, 15, 15, 2, 3213199458, CAST('{"type":"tool_output_recorded","call_id":"call_1","tool_name":"terminal","output":"a file","ok":true,"files":[],"not_executed":null,"change":null}
' AS BLOB), 1794808898.1155272);
INSERT INTO batches VALUES (15, 2, 19, 20, 2, 2184955180, CAST('{"type":"message_recorded","message":{"role":"assistant","parts":[{"type":"text","text":"Done."}]},"stop":"end"}
{"type":"usage_recorded","usage":{"input_tokens":3,"output_tokens":5},"provider":"","model":""}
' AS BLOB), 1794808898.1158547);
INSERT INTO batches VALUES (16, 2, 21, 21, 2, 899741372, CAST('{"type":"run_finished","status":"completed","output":"Done.","usage":{"input_tokens":3,"output_tokens":5},"error":null,"at":0.0,"spent":[{"provider":"","model":"","usage":{"input_tokens":3,"output_tokens":5}}]}
' AS BLOB), 1794808898.1161733);
INSERT INTO batches VALUES (17, 3, 1, 1, 1, 407105305, CAST('{"type":"run_started","kind":"sequence","model":"","session":"","at":1794808898.1209621}
' AS BLOB), 1794808898.1209621);
INSERT INTO batches VALUES (18, 3, 2, 3, 1, 3767400528, CAST('{"type":"step_started","block_id":"x","number":1,"at":0.0}
{"type":"llm_delta","block_id":"x","delta":"lo"}
' AS BLOB), 1794808898.1217105);
INSERT INTO batches VALUES (19, 3, 4, 5, 1, 998349391, CAST('{"type":"step_finished","block_id":"x","output":{"text":"long long long long long long long long long long "}}
{"type":"step_finished","block_id":"y","output":2}
' AS BLOB), 1794808898.1222632);
INSERT INTO batches VALUES (20, 3, 6, 6, 1, 1360141253, CAST('{"type":"run_finished","status":"completed","output":"","usage":{},"error":null,"at":0.0}
' AS BLOB), 1794808898.1226938);
INSERT INTO batches VALUES (21, 4, 1, 1, 1, 3795295246, CAST('{"type":"run_started","kind":"agent","model":"","session":"","at":1794808898.1231518}
' AS BLOB), 1794808898.1231518);
INSERT INTO batches VALUES (22, 4, 2, 2, 1, 3238828326, CAST('{"type":"gateway_notice","kind":"parked","text":"it kept dying","extra":{}}
' AS BLOB), 1794808898.1238856);
INSERT INTO batches VALUES (23, 5, 1, 1, 1, 1252922877, CAST('{"type":"run_started","kind":"agent","model":"","session":"t","at":1794808898.1245039}
' AS BLOB), 1794808898.1245039);
INSERT INTO batches VALUES (24, 5, 2, 3, 1, 528433364, CAST('{"type":"message_chunk","text":"so far"}
{"type":"tool_output_recorded","call_id":"call","tool_name":"terminal","output":"done","ok":true,"files":[],"not_executed":null,"change":null}
' AS BLOB), 1794808898.1258056);
INSERT INTO snapshots VALUES (2, 20, 2, 3501073362, CAST('{"type":"snapshot","status":"running","started":{"type":"run_started","kind":"agent","model":"fake/m","session":"s","at":1794808898.1127906},"messages":[{"text":"I look: “ä”\n","pieces":[[2,12]],"stopped":true},{"text":"Done.","pieces":[[2,5]],"stopped":true,"final":true}],"reasoning":{"text":"hm","pieces":[[2,2]]},"tools":[{"tool_name":"terminal","attempt":2,"preview":"ls","args":{"command":"ls"},"ok":true,"duration":9.5}],"approvals":[{"asked":{"type":"approval_asked","approval_id":"a1","tool_name":"terminal","command":"ls","digest":"d1","requester":"me","call_id":"call_1","reason":"why","directory":"","session":"","asked_at":0.0,"expires_at":0.0},"decision":"once","index":0}],"usage":{"input_tokens":3,"output_tokens":5},"output":"Done.","error":null,"steps":[],"state":null,"calls":[],"spent":[{"provider":"","model":"","usage":{"input_tokens":3,"output_tokens":5}}]}
' AS BLOB));
INSERT INTO signals VALUES (1, 5, 'stop', CAST('{"why":"x"}' AS BLOB), 'me');
INSERT INTO key_values VALUES ('chats', 'k', X'7600');
INSERT INTO counters VALUES ('a', 1.5);
INSERT INTO places VALUES (1, 1, 1);
INSERT INTO places VALUES (1, 2, 2);
INSERT INTO places VALUES (1, 4, 3);
INSERT INTO places VALUES (1, 6, 4);
INSERT INTO places VALUES (1, 10, 5);
INSERT INTO places VALUES (1, 12, 6);
INSERT INTO places VALUES (1, 15, 7);
INSERT INTO places VALUES (1, 17, 8);
INSERT INTO places VALUES (1, 21, 9);
INSERT INTO places VALUES (2, 1, 10);
INSERT INTO places VALUES (2, 2, 11);
INSERT INTO places VALUES (2, 4, 12);
INSERT INTO places VALUES (2, 10, 13);
INSERT INTO places VALUES (2, 15, 14);
INSERT INTO places VALUES (2, 19, 15);
INSERT INTO places VALUES (2, 21, 16);
INSERT INTO places VALUES (3, 1, 17);
INSERT INTO places VALUES (3, 2, 18);
INSERT INTO places VALUES (3, 4, 19);
INSERT INTO indexed VALUES (1, 19);
