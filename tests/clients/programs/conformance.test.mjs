// The public conformance suite of the Durable Streams protocol, against the server of the test.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({ baseUrl: process.env.STREAMS_URL })
