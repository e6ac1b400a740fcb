// The protocol's own client reads a run: whole, live by both transports, and from where it was.
import { readFileSync } from "node:fs"
import { stream } from "@durable-streams/client"

const { url, key } = JSON.parse(readFileSync(0, "utf8"))
const headers = key ? { Authorization: `Bearer ${key}` } : {}

async function read(live, offset = "-1") {
  const response = await stream({ url, live, offset, headers, json: true })
  const items = []
  for await (const item of response.jsonStream()) items.push(item)
  return { items, offset: response.offset, closed: response.streamClosed }
}

async function first(live) {
  const response = await stream({ url, live, offset: "-1", headers, json: true })
  for await (const item of response.jsonStream()) if (item.type === "message_chunk") break
  response.cancel()
  return response.offset
}

async function refused(wrong) {
  try {
    await (await stream({ url, live: false, headers: wrong, json: true })).json()
  } catch (error) {
    return error.status
  }
}

const [polled, followed] = await Promise.all([read("long-poll"), read("sse")])
const whole = await read(false)
const offset = await first("long-poll")
const rest = await read("long-poll", offset)
const statuses = key ? [await refused({}), await refused({ Authorization: "Bearer of-models" })] : []
console.log(JSON.stringify({ polled, followed, whole, offset, rest, statuses }))
