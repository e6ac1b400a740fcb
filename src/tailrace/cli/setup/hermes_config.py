"""The settings of Hermes Agent as a config of ours. Pure: its files in; a config and the settings left out of it.

Hermes keeps `config.yaml` and `.env` in its home. Keys stay in variables: their values are never copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from tailrace.cli.setup.platform_questions import questions_of
from tailrace.config.presets import PRESETS
from tailrace.errors import ConfigError
from tailrace.messages import JsonObject
from tailrace.plugins.installed import platforms

_CREDENTIAL: Final = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)  # a header of that name
_VARIABLE: Final = re.compile(r"(?:Bearer )?\$\{(\w+)\}")
_DIALECTS: Final = {"chat_completions": "chat", "codex_responses": "responses", "anthropic_messages": "anthropic"}
_APPROVALS: Final = {"manual": "ask", "smart": "ask", "ask": "ask", "off": "yolo", "deny": "deny"}
# What has a counterpart by itself: its place in Hermes' config, and its place in ours.
_SAME: Final = (
    ("model.context_length", "agent.context_tokens"),
    ("display.streaming", "streaming.cli"),
    ("display.show_reasoning", "agent.show_reasoning"),
    ("streaming.enabled", "streaming.enabled"),
    ("streaming.edit_interval", "streaming.edit_interval"),
    ("agent.max_turns", "agent.max_turns"),
    ("agent.api_max_retries", "call.max_attempts"),
    ("approvals.timeout", "approvals.timeout_s"),
    ("checkpoints.enabled", "checkpoints.enabled"),
)
_DIVIDED: Final = {place.partition(".")[0] for place, _ in _SAME} | {"sessions"}
_ENDPOINT: Final = (
    ("key_env", "key_env"),
    ("extra_body", "extra_body"),
    ("extra_headers", "headers"),
    ("default_headers", "headers"),
    ("request_timeout_seconds", "total_timeout_s"),
)


class HermesImport:
    """`config` is ours. `notes` say what a person has to do, `left_out` what has no counterpart."""

    def __init__(self, settings: JsonObject, variables: Mapping[str, str]) -> None:
        self._settings = settings
        self._variables = variables
        self.config: JsonObject = {}
        self.notes: list[str] = []
        self._named: list[str] = []  # variables beside those that the config names
        if isinstance(model := settings.get("model"), str):
            settings["model"] = {"default": model}
        self._take("_config_version")
        self._models()
        for theirs, ours in _SAME:
            self._set(ours, self._take(theirs))
        if "enabled" in self.config.get("streaming", {}):  # Hermes' switch is for chats alone
            self.config["streaming"].setdefault("cli", True)
        mode = str(self._take("approvals.mode")).lower()
        self._set("approvals.mode", _APPROVALS.get(mode))
        if mode == "smart":
            self.notes.append("approvals.mode: smart is ask here: a person decides, not a model")
        if self._take("sessions.auto_prune") is not False:
            self._set("store.delete_after_days", self._take("sessions.retention_days"))
        self._mcp_servers()
        self._platforms()

    def left_out(self) -> Iterator[str]:
        """The settings that were not imported: a section by its name where all of it is left, else key by key."""
        for name, value in self._settings.items():
            if isinstance(value, dict) and name in {*_DIVIDED, *self.config.get("platforms", ())}:
                yield from (f"{name}.{key}" for key in value)
            elif value not in (None, {}, []):
                yield name

    def used_variables(self) -> list[str]:
        """The variables that the config names and that are set for Hermes."""
        named = [*re.findall(r"\b[A-Z][A-Z0-9_]+\b", str(self.config)), *self._named]
        named += [preset.key_env for name in self._asked() if (preset := PRESETS.get(name)) and preset.key_env]
        return [name for name in dict.fromkeys(named) if name in self._variables]

    def _asked(self) -> list[str]:
        model = self.config.get("model", {})
        return [ref["provider"] for ref in (model, *model.get("fallbacks", ())) if "provider" in ref]

    def _take(self, place: str) -> Any:
        """The value at this place, which counts as imported from now on; None where there is none."""
        section, _, key = place.rpartition(".")
        within = self._settings.get(section) if section else self._settings
        return within.pop(key, None) if isinstance(within, dict) else None

    def _set(self, place: str, value: Any) -> None:
        section, _, key = place.partition(".")
        if value is not None and value != "":
            self.config.setdefault(section, {})[key] = value

    # ── models ───────────────────────────────────────────────────────────────────────────────────────────────

    def _models(self) -> None:
        own = [*self._entries("providers"), *self._entries("custom_providers")]
        for name, entry in own:
            self._add_provider(name, entry)
        model = {key: self._take(f"model.{key}") for key in ("default", "model", "provider", "base_url", "api_key")}
        named = str(model["default"] or model["model"] or "")
        address = {"base_url": model["base_url"], "api_key": model["api_key"]}
        address |= {key: self._take(f"model.{key}") for key in ("api_mode", "default_headers", "extra_headers")}
        provider = self._provider(str(model["provider"] or "auto"), address)
        if self._take("model.streaming") is False:
            self.config.setdefault("providers", {}).setdefault(provider, {})["stream"] = False
        if named:
            self.config["model"] = {"provider": provider, "name": _model_name(named, provider)}
        fallbacks = [self._take("fallback_model"), *(self._take("fallback_providers") or ())]
        refs = [self._ref(entry) for entry in fallbacks if isinstance(entry, dict) and entry.get("model")]
        if refs and named:
            self.config["model"]["fallbacks"] = refs
        routing = self._take("provider_routing")
        routing = dict(routing) if isinstance(routing, dict) else {}
        if routing.pop("models", None):
            self.notes.append("provider_routing.models: preferences hold for a provider here, not for one model")
        if routing:
            openrouter = self.config.setdefault("providers", {}).setdefault("openrouter", {})
            openrouter.setdefault("extra_body", {})["provider"] = routing

    def _entries(self, section: str) -> Iterator[tuple[str, JsonObject]]:
        """Named providers: a mapping, or the list of Hermes' older form."""
        found = self._take(section) or {}
        listed = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        pairs = found.items() if isinstance(found, dict) else ((one.get("name", "custom"), one) for one in listed)
        yield from ((str(name), entry) for name, entry in pairs if isinstance(entry, dict))

    def _ref(self, entry: JsonObject) -> JsonObject:
        provider = self._provider(str(entry.get("provider") or "auto"), entry)
        return {"provider": provider, "name": _model_name(str(entry["model"]), provider)}

    def _provider(self, name: str, address: JsonObject) -> str:
        """The provider's name here. `auto` is the one at the address, else OpenRouter, as in Hermes."""
        url = str(address.get("base_url") or "")
        if name == "auto":
            hosts = {urlsplit(preset.base_url).hostname: known for known, preset in PRESETS.items()}
            name = hosts.get(urlsplit(url).hostname, "custom") if url else "openrouter"
        if name == "custom" and not url:
            self.notes.append("model.provider: custom has no base_url; set it below providers.custom")
        self._add_provider(name, address)
        if name not in PRESETS and "base_url" not in self.config.get("providers", {}).get(name, {}):
            self.notes.append(f"provider {name} is not known here: set its base_url and key_env below providers.{name}")
        return name

    def _add_provider(self, name: str, entry: JsonObject) -> None:
        settings = {ours: entry[theirs] for theirs, ours in _ENDPOINT if entry.get(theirs)}
        if isinstance(headers := settings.pop("headers", None), dict):
            if secret := [header for header in headers if _CREDENTIAL.search(header)]:
                self.notes.append(f"headers of {name} are not copied, they may hold keys: {', '.join(secret)}")
            if public := {header: value for header, value in headers.items() if header not in secret}:
                settings["headers"] = public
        preset = PRESETS.get(name)
        url = str(entry.get("base_url") or "")
        if url and (preset is None or url.rstrip("/") != preset.base_url.rstrip("/")):
            settings["base_url"] = url
        if preset is None and (url or entry.get("api_mode")):
            settings["dialect"] = _DIALECTS.get(str(entry.get("api_mode")), "chat")
        if key := str(entry.get("api_key") or ""):
            reference = _VARIABLE.fullmatch(key)
            usual = (preset.key_env if preset else None) or re.sub(r"\W", "_", f"{name}_API_KEY".upper())
            settings["key_env"] = reference[1] if reference else usual
            if not reference:
                self.notes.append(f"the key of {name} stands in Hermes' config: export it as {usual}")
        if settings:
            self.config.setdefault("providers", {}).setdefault(name, {}).update(settings)

    # ── tools and chats ──────────────────────────────────────────────────────────────────────────────────────

    def _mcp_servers(self) -> None:
        for name, server in self._entries("mcp_servers"):
            ours: JsonObject = {}
            if server.get("command"):
                ours["command"] = [server["command"], *server.get("args", ())]
            if environment := server.get("env"):
                ours["env_allow"] = list(environment)
                self.notes.append(f"MCP server {name}: export {', '.join(environment)}")
            headers = server.get("headers")
            for header, value in headers.items() if isinstance(headers, dict) else ():
                reference = _VARIABLE.fullmatch(str(value))
                if reference and str(value).startswith("Bearer "):
                    ours["key_env"] = reference[1]
                elif reference or _CREDENTIAL.search(header):
                    variable = reference[1] if reference else re.sub(r"\W", "_", f"{name}_{header}".upper())
                    ours.setdefault("headers_env", {})[header] = variable
                    if not reference:
                        self.notes.append(f"MCP server {name}: export the value of {header} as {variable}")
                else:
                    ours.setdefault("headers", {})[header] = value
            if "url" in server:
                ours["url"] = server["url"]
            if "timeout" in server:
                ours["timeout_s"] = server["timeout"]
            self.config.setdefault("mcp", {}).setdefault("servers", {})[name] = ours

    def _platforms(self) -> None:
        """Those whose secrets are set for Hermes, under the same variables."""
        busy = self._take("display.busy_input_mode")
        for name in platforms():
            try:
                questions = questions_of(name)
            except ConfigError:  # of an integration that is broken
                continue
            if questions is None or not all(self._variables.get(each) for each in questions.secrets.values()):
                continue
            if questions.keys:
                self.notes.append(f"{name} needs {', '.join(questions.keys)}: tailrace add {name}")
                continue
            users = self._variables.get(f"{name.upper()}_ALLOWED_USERS", "").split(",")
            allow = [int(user) if user.isdecimal() else user for user in map(str.strip, users) if user]
            settings = {"enabled": True, "allow": allow} | ({"busy": "queue"} if busy == "queue" else {})
            self.config.setdefault("platforms", {})[name] = settings
            self._named += questions.secrets.values()


def _model_name(name: str, provider: str) -> str:
    """Without the provider's name before it."""
    return name.removeprefix(f"{provider}/")
