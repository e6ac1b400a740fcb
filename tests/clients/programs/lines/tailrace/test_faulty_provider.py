from tailrace import Agent
from tailrace.testing import FaultyProvider, reply


async def test_it_answers_after_a_busy_provider() -> None:
    async with FaultyProvider(["status-529-after-0", "tools+cut@50%", reply("Hello.")]) as provider:
        assert (await Agent(config=provider.config).run("Hi.")).output == "Hello."
