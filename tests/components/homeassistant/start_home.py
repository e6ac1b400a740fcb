"""Starts Home Assistant for the tests, with its own Python: `python start_home.py CONFIG_DIR`.

A bare one: what `configuration.yaml` names and what that depends on, and nothing that looks around or calls home. No
front end, backup or analytics, and names are resolved without mDNS, which would send multicasts. Writes `started`
once it is.
"""

import asyncio
import sys

import aiohttp
from homeassistant import bootstrap, runner
from homeassistant.const import EVENT_HOMEASSISTANT_STARTED
from homeassistant.core import Event, HomeAssistant
from homeassistant.helpers import aiohttp_client


def _resolver(_hass: HomeAssistant) -> aiohttp.ThreadedResolver:
    return aiohttp.ThreadedResolver()


async def _run(config: runner.RuntimeConfig) -> int:
    hass = await bootstrap.async_setup_hass(config)
    if hass is None:
        return 1

    async def started(_event: Event) -> None:
        sys.stdout.write("started\n")
        sys.stdout.flush()

    hass.bus.async_listen_once(EVENT_HOMEASSISTANT_STARTED, started)
    return await hass.async_run()


def main() -> int:
    bootstrap.DEFAULT_INTEGRATIONS = set()
    bootstrap.CRITICAL_INTEGRATIONS = set()
    aiohttp_client._async_make_resolver = _resolver
    asyncio.set_event_loop_policy(runner.HassEventLoopPolicy(False))
    return asyncio.run(_run(runner.RuntimeConfig(config_dir=sys.argv[1], skip_pip=True, log_no_color=True)))


if __name__ == "__main__":
    sys.exit(main())
