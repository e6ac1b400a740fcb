"""The forms: an address and a key, another agent of a server, another key, another address, and the options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from homeassistant.config_entries import SOURCE_REAUTH, ConfigFlow, ConfigFlowResult, OptionsFlow
from homeassistant.const import CONF_API_KEY, CONF_NAME, CONF_URL, CONF_VERIFY_SSL
from homeassistant.core import DOMAIN as HOMEASSISTANT_DOMAIN
from homeassistant.core import callback
from homeassistant.helpers.issue_registry import async_delete_issue
from homeassistant.helpers.selector import (
    BooleanSelector,
    NumberSelector,
    NumberSelectorConfig,
    NumberSelectorMode,
    SelectSelector,
    SelectSelectorConfig,
    SelectSelectorMode,
    TextSelector,
    TextSelectorConfig,
    TextSelectorType,
)
from yarl import URL

from .assistant import TailraceEntry, client_of
from .client import CertificateRefused, KeyMayNot, KeyRefused, NoTls, NotTailrace, TailraceClient, TailraceError
from .const import (
    CONF_ANSWER_SECONDS,
    CONF_INSTRUCTIONS,
    CONF_MODEL,
    CONF_RECONNECT_SECONDS,
    CONF_SESSION_MINUTES,
    DEFAULT_ANSWER_SECONDS,
    DEFAULT_INSTRUCTIONS,
    DEFAULT_MODEL,
    DEFAULT_RECONNECT_SECONDS,
    DEFAULT_SESSION_MINUTES,
    DEFAULT_URL,
    DOMAIN,
)

try:
    import probatio as vol  # what Home Assistant 2026.9 and newer have in place of voluptuous
except ImportError:
    import voluptuous as vol

_KEY = TextSelector(TextSelectorConfig(type=TextSelectorType.PASSWORD))
_CONNECTION = vol.Schema(
    {
        vol.Required(CONF_URL, default=DEFAULT_URL): TextSelector(TextSelectorConfig(type=TextSelectorType.URL)),
        vol.Optional(CONF_API_KEY): _KEY,
        vol.Required(CONF_VERIFY_SSL, default=True): BooleanSelector(),
    }
)
_NEW_KEY = vol.Schema({vol.Required(CONF_API_KEY): _KEY})


def _server_url(given: str) -> str | None:
    """The server's address as it is kept; None for what is none. One without a scheme is taken as it is typed into a
    browser. What the address of the API adds is left out."""
    given = given.strip()
    try:
        url = URL(given if "://" in given else f"http://{given}")
        (url.host or "").encode("idna")  # as the resolver does: it fails for two dots in a row
    except ValueError:
        return None
    if url.scheme not in ("http", "https") or not url.host or " " in url.host or url.user or url.password:
        return None
    return str(url.with_query(None).with_fragment(None)).rstrip("/").removesuffix("/v1")


class TailraceConfigFlow(ConfigFlow, domain=DOMAIN):  # type: ignore[call-arg,unused-ignore]
    VERSION = 1

    def __init__(self) -> None:
        self._server: dict[str, Any] = {}  # of the form before, for another agent of it

    async def async_step_user(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        errors: dict[str, str] = {}
        if user_input is not None:
            data, errors = await self._checked(user_input)
            if not errors:
                known = [entry.data[CONF_URL] for entry in self._async_current_entries()]
                if data[CONF_URL] in known:
                    self._server = data
                    return await self.async_step_agent()
                # the others can be told apart in the lists of agents
                title = f"Tailrace ({URL(data[CONF_URL]).authority})" if known else "Tailrace"
                return self.async_create_entry(title=title, data=data)
        form = self.add_suggested_values_to_schema(_CONNECTION, user_input)
        return self.async_show_form(step_id="user", data_schema=form, errors=errors)

    async def async_step_agent(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Another agent of a server that is set up already: with a name and a model of its own."""
        client, errors = client_of(self.hass, self._server), dict[str, str]()
        if user_input is not None:
            name, model = user_input[CONF_NAME].strip(), user_input.get(CONF_MODEL, "").strip()
            if not name:
                errors = {CONF_NAME: "no_name"}
            elif not await _is_usable(client, model):
                errors = {CONF_MODEL: "unknown_model"}
            else:
                return self.async_create_entry(title=name, data=self._server, options={CONF_MODEL: model})
        schema = vol.Schema(
            {vol.Required(CONF_NAME): TextSelector(), vol.Optional(CONF_MODEL): await _model_selector(client)}
        )
        form = self.add_suggested_values_to_schema(schema, user_input)
        where = {"url": self._server[CONF_URL]}
        return self.async_show_form(step_id="agent", data_schema=form, errors=errors, description_placeholders=where)

    async def async_step_reconfigure(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        entry, errors = self._get_reconfigure_entry(), dict[str, str]()
        if user_input is not None:
            data, errors = await self._checked(user_input)
            if not errors:
                return self.async_update_reload_and_abort(entry, data=data)
        form = self.add_suggested_values_to_schema(_CONNECTION, user_input or entry.data)
        return self.async_show_form(step_id="reconfigure", data_schema=form, errors=errors)

    async def async_step_reauth(self, _entry_data: Mapping[str, Any]) -> ConfigFlowResult:
        return await self.async_step_reauth_confirm()

    async def async_step_reauth_confirm(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        entry, errors = self._get_reauth_entry(), dict[str, str]()
        if user_input is not None:
            data, errors = await self._checked({**entry.data, **user_input})
            if not errors:
                self._give_to_others(entry, data[CONF_API_KEY])
                return self.async_update_reload_and_abort(entry, data=data)
        where = {"url": entry.data[CONF_URL]}
        return self.async_show_form(
            step_id="reauth_confirm", data_schema=_NEW_KEY, errors=errors, description_placeholders=where
        )

    def _give_to_others(self, entry: TailraceEntry, key: str) -> None:
        """The other agents of the server that had the same key get the new one too; what they ask for is withdrawn."""
        before = (entry.data[CONF_URL], entry.data.get(CONF_API_KEY))
        for other in self._async_current_entries():
            if other.entry_id != entry.entry_id and (other.data[CONF_URL], other.data.get(CONF_API_KEY)) == before:
                self.hass.config_entries.async_update_entry(other, data={**other.data, CONF_API_KEY: key})
                for flow in list(other.async_get_active_flows(self.hass, {SOURCE_REAUTH})):
                    self.hass.config_entries.flow.async_abort(flow["flow_id"])
                async_delete_issue(self.hass, HOMEASSISTANT_DOMAIN, f"config_entry_reauth_{DOMAIN}_{other.entry_id}")
                self.hass.config_entries.async_schedule_reload(other.entry_id)

    async def _checked(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """The data of an entry, and what is wrong with it by field."""
        data = dict(given)
        url = _server_url(data[CONF_URL])
        if url is None:
            return data, {CONF_URL: "invalid_url"}
        data[CONF_URL] = url
        if CONF_API_KEY in data:
            data[CONF_API_KEY] = data[CONF_API_KEY].strip()
        if not data.get(CONF_API_KEY, "").isprintable():  # a line break can be in no header
            return data, {CONF_API_KEY: "invalid_auth"}
        try:
            await client_of(self.hass, data).check()
        except KeyRefused:
            return data, {CONF_API_KEY: "invalid_auth" if data.get(CONF_API_KEY) else "no_key"}
        except KeyMayNot:
            return data, {CONF_API_KEY: "insufficient_scope"}
        except NotTailrace:
            return data, {"base": "not_tailrace"}
        except CertificateRefused:
            return data, {"base": "certificate"}
        except NoTls:
            return data, {CONF_URL: "no_tls"}
        except TailraceError:
            return data, {"base": "cannot_connect"}
        return data, {}

    @staticmethod
    @callback
    def async_get_options_flow(_config_entry: TailraceEntry) -> OptionsFlow:
        return TailraceOptionsFlow()


class TailraceOptionsFlow(OptionsFlow):
    async def async_step_init(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        client, errors = client_of(self.hass, dict(self.config_entry.data)), dict[str, str]()
        shown = {CONF_MODEL: DEFAULT_MODEL, CONF_INSTRUCTIONS: DEFAULT_INSTRUCTIONS, **self.config_entry.options}
        if user_input is not None:
            shown = {CONF_MODEL: "", CONF_INSTRUCTIONS: "", **user_input}
            shown[CONF_MODEL] = shown[CONF_MODEL].strip()
            if await _is_usable(client, shown[CONF_MODEL]):
                return self.async_create_entry(data=shown)
            errors = {CONF_MODEL: "unknown_model"}
        form = self.add_suggested_values_to_schema(await self._schema(client), shown)
        return self.async_show_form(step_id="init", data_schema=form, errors=errors)

    async def _schema(self, client: TailraceClient) -> vol.Schema:
        return vol.Schema(
            {
                vol.Optional(CONF_MODEL): await _model_selector(client),
                vol.Optional(CONF_INSTRUCTIONS): TextSelector(TextSelectorConfig(multiline=True)),
                vol.Required(CONF_SESSION_MINUTES, default=DEFAULT_SESSION_MINUTES): _number(0, 10080, "min"),
                vol.Required(CONF_ANSWER_SECONDS, default=DEFAULT_ANSWER_SECONDS): _number(1, 3600, "s"),
                vol.Required(CONF_RECONNECT_SECONDS, default=DEFAULT_RECONNECT_SECONDS): _number(1, 600, "s"),
            }
        )


async def _model_selector(client: TailraceClient) -> SelectSelector:
    """The models that the server lists, or any other name."""
    try:
        models = await client.models()
    except TailraceError:
        models = []
    return SelectSelector(SelectSelectorConfig(options=models, custom_value=True, mode=SelectSelectorMode.DROPDOWN))


async def _is_usable(client: TailraceClient, model: str) -> bool:
    """Whether the server has such a model. One that cannot be asked just now is believed."""
    try:
        return not model or await client.knows_model(model)
    except TailraceError:
        return True


def _number(least: int, most: int, unit: str) -> NumberSelector:
    return NumberSelector(
        NumberSelectorConfig(min=least, max=most, step=1, mode=NumberSelectorMode.BOX, unit_of_measurement=unit)
    )
