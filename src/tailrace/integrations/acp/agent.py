"""The methods of the Agent Client Protocol, over the use cases of the app.

Owns the sessions of one connection and what is answered to each request. `initialize` is answered before the app is
open; what keeps it from opening is the error of the first session.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from acp.exceptions import RequestError
from acp.meta import PROTOCOL_VERSION
from pydantic import BaseModel, ValidationError

from acp import schema
from tailrace import __version__
from tailrace.agent.session import TURN_KIND
from tailrace.app import App
from tailrace.app.models import endpoint_of, named
from tailrace.config.error_place import with_place
from tailrace.config.load import Config
from tailrace.errors import ConfigError, TailraceError
from tailrace.integrations.acp.editor import Editor, RequestId, handled_id
from tailrace.integrations.acp.log_to_updates import update_line
from tailrace.integrations.acp.mcp_servers import GivenServer, mcp_is_installed
from tailrace.integrations.acp.prompt_content import UnreadablePrompt, message_of
from tailrace.integrations.acp.questions_elsewhere import ask_elsewhere
from tailrace.integrations.acp.session import (
    MODE,
    MODEL,
    EditorSession,
    StoredSession,
    config_options,
    mode_ids,
    mode_state,
    stored_sessions,
)
from tailrace.integrations.acp.turn_end import failure_text, prompt_response

log = logging.getLogger("tailrace.integrations.acp")
AUTH_REQUIRED: Final = -32000
INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
NOT_FOUND: Final = -32002
REQUEST_CANCELLED: Final = -32800
CATALOGUE_S: Final = 1.0  # for the list of models; a provider that is slower is listed in the next session
LAST_ANSWERS_S: Final = 2.0  # for requests that came right before the end of input

Request = TypeVar("Request", bound=BaseModel)
Method = Callable[[Any], Awaitable[BaseModel | None]]


class AcpAgent:
    """One connection's agent. `config` is None where it cannot be loaded: `failed` says why."""

    def __init__(self, editor: Editor, config: Config | None) -> None:
        self._editor = editor
        self._config = config
        self._app: asyncio.Future[App] = asyncio.get_running_loop().create_future()
        self._sessions: dict[str, EditorSession] = {}
        self._short_requests = 0  # under way, turns not counted
        self._answered = asyncio.Event()
        self._requests: dict[RequestId, Callable[[], object]] = {}  # how each one under way is cancelled, by id
        self._taken_back: set[RequestId] = set()  # those that the editor has cancelled
        self._elsewhere: asyncio.Task[None] | None = None
        self._listing: asyncio.Task[tuple[tuple[str, str], ...]] | None = None
        self._methods: dict[str, Method] = {
            "initialize": _taking(schema.InitializeRequest, self.initialize),
            "authenticate": _taking(schema.AuthenticateRequest, self.authenticate),
            "session/new": _taking(schema.NewSessionRequest, self.new_session),
            "session/load": _taking(schema.LoadSessionRequest, self.load_session),
            "session/resume": _taking(schema.ResumeSessionRequest, self.resume_session),
            "session/list": _taking(schema.ListSessionsRequest, self.list_sessions),
            "session/close": _taking(schema.CloseSessionRequest, self.close_session),
            "session/prompt": _taking(schema.PromptRequest, self.prompt),
            "session/cancel": _taking(schema.CancelNotification, self.cancel),
            "$/cancel_request": _taking(schema.CancelRequestNotification, self.cancel_request),
            "session/set_mode": _taking(schema.SetSessionModeRequest, self.set_mode),
            "session/set_config_option": _taking(schema.SetSessionConfigOptionSelectRequest, self.set_config_option),
        }

    def opened(self, app: App) -> None:
        self._app.set_result(app)

    def failed(self, error: TailraceError) -> None:
        """The app cannot be opened: every request that needs it says so."""
        self._app.set_exception(error)
        self._app.exception()  # retrieved: there may be no request

    async def close(self) -> None:
        """Lets go of the sessions; their turns are left as they are."""
        await asyncio.gather(*(session.close() for session in self._sessions.values()))
        for task in (self._listing, self._elsewhere):
            if task is not None:
                task.cancel()

    async def handle(self, method: str, params: Any, is_notification: bool) -> BaseModel | None:
        """For the SDK's connection. Raises `RequestError`."""
        known = self._methods.get(method)
        if known is None:
            if is_notification:
                log.info("the editor's notification %s is not known here", method)
                return None
            raise RequestError.method_not_found(method)
        short = method != "session/prompt"
        self._short_requests += short
        number = None if is_notification else handled_id.get()
        task = asyncio.current_task()
        if number is not None and task is not None:
            self._requests[number] = task.cancel
        try:
            return await _translated(method, known(params))
        except asyncio.CancelledError:
            if task is None or number not in self._taken_back:
                raise
            task.uncancel()
            raise RequestError(REQUEST_CANCELLED, "the request was cancelled") from None
        except RequestError:
            if is_notification:
                return None
            raise
        finally:
            if number is not None:
                self._requests.pop(number, None)
                self._taken_back.discard(number)
            self._short_requests -= short
            self._answered.set()

    async def answer_the_rest(self, timeout_s: float = LAST_ANSWERS_S) -> None:
        """Returns when all requests from before the end of input are answered, except turns: those are not awaited."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._short_requests:
                    self._answered.clear()
                    await self._answered.wait()

    # ── the connection ───────────────────────────────────────────────────────────────────────────────────────

    async def initialize(self, request: schema.InitializeRequest) -> schema.InitializeResponse:
        self._editor.offered = request.client_capabilities or schema.ClientCapabilities()
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,  # the only one: an editor that cannot speak it disconnects
            agent_info=schema.Implementation(name="tailrace", title="Tailrace", version=__version__),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=mcp_is_installed(), sse=mcp_is_installed()),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[*self._auth_methods()],
        )

    def _auth_methods(self) -> list[schema.EnvVarAuthMethod]:
        """The variable that holds the key of the configured model, where it is not set."""
        if self._config is None or (missing := _missing_key(self._config)) is None:
            return []
        variable, provider = missing
        return [
            schema.EnvVarAuthMethod(
                type="env_var",
                id=f"env:{variable}",
                name=f"Set {variable}",
                description=f"The key of {provider}, in the environment in which the editor starts tailrace acp.",
                vars=[schema.AuthEnvVar(name=variable)],
            )
        ]

    async def authenticate(self, _request: schema.AuthenticateRequest) -> schema.AuthenticateResponse:
        """Keys are read when the process starts; there is nothing to do here but to say so."""
        await self._checked_app()
        return schema.AuthenticateResponse()

    async def _checked_app(self, model: str = "") -> App:
        """The app, once it is open and the model can be called. Raises `RequestError`, `TailraceError`."""
        app = await asyncio.shield(self._app)
        try:
            app.models.routes(named(app.config, model))
        except ConfigError as exc:
            placed = with_place(exc, app.config)
            raise RequestError(AUTH_REQUIRED if exc.key.endswith(".key_env") else INTERNAL_ERROR, str(placed)) from exc
        return app

    # ── sessions ─────────────────────────────────────────────────────────────────────────────────────────────

    async def new_session(self, request: schema.NewSessionRequest) -> schema.NewSessionResponse:
        directory = await _checked_directory(request.cwd)
        app = await self._checked_app()
        session_id = f"ses_{secrets.token_hex(8)}"
        stored = StoredSession(directory, mode_ids(app.config)[0])
        options = await self._config_options(app, stored)
        self._opened(app, session_id, stored, request.mcp_servers)  # last: a request that is cancelled opens nothing
        return schema.NewSessionResponse(
            session_id=session_id, modes=mode_state(app.config, stored.mode), config_options=options
        )

    async def load_session(self, request: schema.LoadSessionRequest) -> schema.LoadSessionResponse:
        app, session = await self._found(request.session_id, request.cwd, request.mcp_servers)
        await self._shown(session, session.replay())
        options = await self._config_options(app, session.stored)
        return schema.LoadSessionResponse(modes=mode_state(app.config, session.stored.mode), config_options=options)

    async def resume_session(self, request: schema.ResumeSessionRequest) -> schema.ResumeSessionResponse:
        app, session = await self._found(request.session_id, request.cwd, request.mcp_servers or [])
        await self._shown(session, session.resume())
        options = await self._config_options(app, session.stored)
        return schema.ResumeSessionResponse(modes=mode_state(app.config, session.stored.mode), config_options=options)

    async def _shown(self, session: EditorSession, showing: Awaitable[None]) -> None:
        """A session that could not be shown whole is not open: the editor loads it again."""
        try:
            await showing
        except BaseException:
            del self._sessions[session.id]
            await session.close()
            raise

    async def list_sessions(self, request: schema.ListSessionsRequest) -> schema.ListSessionsResponse:
        app = await asyncio.shield(self._app)
        known = await stored_sessions(app.journal).all()
        return schema.ListSessionsResponse(
            sessions=[
                schema.SessionInfo(
                    session_id=session_id,
                    cwd=stored.directory,
                    title=stored.title,
                    updated_at=datetime.fromtimestamp(stored.at, UTC).isoformat(),
                )
                for session_id, stored in sorted(known.items(), key=lambda one: one[1].at, reverse=True)
                if stored.title and request.cwd in (None, stored.directory)
            ]
        )

    async def close_session(self, request: schema.CloseSessionRequest) -> schema.CloseSessionResponse:
        session = self._session(request.session_id)
        await session.cancel()
        del self._sessions[session.id]
        await session.close()
        return schema.CloseSessionResponse()

    async def _found(self, session_id: str, cwd: str, servers: list[GivenServer]) -> tuple[App, EditorSession]:
        """A session of the journal, also one that began in a terminal."""
        directory = await _checked_directory(cwd)
        app = await asyncio.shield(self._app)
        open_before = self._sessions.get(session_id)
        stored = open_before.stored if open_before is not None else await stored_sessions(app.journal).get(session_id)
        if stored is None and not await app.journal.runs(session=session_id, kind=TURN_KIND, limit=1):
            raise RequestError(NOT_FOUND, f"there is no session {session_id[:80]!r}")
        modes = mode_ids(app.config)
        before = stored or StoredSession(directory)
        stored = StoredSession(
            directory,
            before.mode if before.mode in modes else modes[0],
            _callable_model(app, before.model),
            before.title,
            before.at,
        )
        await self._checked_app(stored.model)
        if (open_before := self._sessions.get(session_id)) is not None:
            if open_before.busy:
                raise RequestError(INVALID_REQUEST, "a prompt or a load of this session is under way; cancel it first")
            del self._sessions[session_id]
            await open_before.close()
            if session_id in self._sessions:
                raise RequestError(INVALID_REQUEST, "the session was loaded twice at once")
        return app, self._opened(app, session_id, stored, servers)

    def _opened(self, app: App, session_id: str, stored: StoredSession, servers: list[GivenServer]) -> EditorSession:
        session = EditorSession(app, self._editor, session_id, stored, servers)
        self._sessions[session_id] = session
        if self._elsewhere is None:
            self._elsewhere = asyncio.create_task(ask_elsewhere(app, self._editor, self._sessions))
        return session

    def _session(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestError(NOT_FOUND, f"there is no open session {session_id[:80]!r}; load it first")
        return session

    # ── turns ────────────────────────────────────────────────────────────────────────────────────────────────

    async def prompt(self, request: schema.PromptRequest) -> schema.PromptResponse:
        session = self._session(request.session_id)
        self._sessions[session.id] = self._sessions.pop(session.id)  # the last is where the user is
        message = message_of(request.prompt)
        cancelled = asyncio.Event()
        if (number := handled_id.get()) is not None:
            self._requests[number] = cancelled.set  # the turn is stopped, and its end is the answer
        shown = await session.prompt(message, time.time(), cancelled)
        if shown is None:
            return schema.PromptResponse(stop_reason="cancelled")
        response = prompt_response(shown)
        if response is None:
            finished = shown.finished
            data = {"kind": finished.error.kind} if finished is not None and finished.error is not None else None
            raise RequestError(INTERNAL_ERROR, failure_text(finished) if finished else "the turn has not ended", data)
        return response

    async def cancel(self, request: schema.CancelNotification) -> None:
        await self._session(request.session_id).cancel()

    async def cancel_request(self, request: schema.CancelRequestNotification) -> None:
        """One request of the editor; an id that is not under way is one that was answered meanwhile."""
        number = request.request_id
        if number is not None and (cancel := self._requests.get(number)) is not None:
            self._taken_back.add(number)
            cancel()

    # ── options ──────────────────────────────────────────────────────────────────────────────────────────────

    async def set_mode(self, request: schema.SetSessionModeRequest) -> schema.SetSessionModeResponse:
        session = self._session(request.session_id)
        app = await self._use_mode(session, request.mode_id)
        options = [
            option.model_dump(mode="json", by_alias=True, exclude_none=True)
            for option in await self._config_options(app, session.stored)
        ]
        update = {"sessionUpdate": "config_option_update", "configOptions": options}
        await self._editor.write(update_line(session.id, update))
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, request: schema.SetSessionConfigOptionSelectRequest
    ) -> schema.SetSessionConfigOptionResponse:
        session = self._session(request.session_id)
        if request.config_id == MODE:
            app = await self._use_mode(session, request.value)
            update = {"sessionUpdate": "current_mode_update", "currentModeId": request.value}
            await self._editor.write(update_line(session.id, update))
        elif request.config_id == MODEL:
            app = await self._checked_app(request.value)
            await session.remember(model=request.value)
        else:
            raise RequestError(INVALID_PARAMS, f"there is no option {request.config_id[:80]!r}; there are mode, model")
        return schema.SetSessionConfigOptionResponse(config_options=await self._config_options(app, session.stored))

    async def _use_mode(self, session: EditorSession, mode: str) -> App:
        app = await asyncio.shield(self._app)
        if mode not in (modes := mode_ids(app.config)):
            raise RequestError(INVALID_PARAMS, f"there is no mode {mode[:80]!r}; there are {', '.join(modes)}")
        await session.remember(mode=mode)
        return app

    async def _config_options(self, app: App, stored: StoredSession) -> list[Any]:
        choice = named(app.config, stored.model)
        models = await self._models(app)
        return [*config_options(app.config, stored.mode, f"{choice.provider}/{choice.name}", models)]

    async def _models(self, app: App) -> tuple[tuple[str, str], ...]:
        """What the providers list, as far as they have answered."""
        if self._listing is None or self._listing.done():
            self._listing = asyncio.create_task(app.catalogue.models())
        await asyncio.wait({self._listing}, timeout=CATALOGUE_S)
        if self._listing.done() and self._listing.exception() is None:
            return self._listing.result()
        return ((app.config.model.provider, app.config.model.name),)


def _taking(model: type[Request], method: Callable[[Request], Awaitable[BaseModel | None]]) -> Method:
    async def handled(params: Any) -> BaseModel | None:
        return await method(model.model_validate(params if params is not None else {}))

    return handled


async def _translated(method: str, work: Awaitable[BaseModel | None]) -> BaseModel | None:
    """What the method returns. Raises `RequestError` for every failure."""
    try:
        return await work
    except RequestError:
        raise
    except ValidationError as exc:
        raise RequestError(INVALID_PARAMS, f"invalid params: {_mistakes(exc)}") from exc
    except UnreadablePrompt as exc:
        raise RequestError(INVALID_PARAMS, str(exc)) from exc
    except TailraceError as exc:
        raise RequestError(INTERNAL_ERROR, str(exc)) from exc
    except Exception as exc:
        log.exception("%s failed", method)
        raise RequestError(INTERNAL_ERROR, f"{type(exc).__name__}: {exc}") from exc


def _missing_key(config: Config) -> tuple[str, str] | None:
    """The variable that is not set, and its provider."""
    provider = config.model.provider
    try:
        endpoint_of(config, provider)
    except ConfigError as exc:
        if exc.key.endswith(".key_env"):
            return exc.message.partition(" ")[0], provider
    return None


def _callable_model(app: App, model: str) -> str:
    """The model that was chosen, as long as it can still be called."""
    try:
        app.models.routes(named(app.config, model))
    except ConfigError:
        return ""
    return model


async def _checked_directory(cwd: str) -> str:
    path = Path(cwd)
    if not path.is_absolute() or not await asyncio.to_thread(path.is_dir):
        raise RequestError(INVALID_PARAMS, f"cwd is no directory, or not absolute: {cwd[:200]!r}")
    return str(path)


def _mistakes(exc: ValidationError) -> str:
    """The first few, each with its place."""
    found = [f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors(include_url=False)[:3]]
    return "; ".join(found)[:500]
