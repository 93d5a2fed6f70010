"""Hooks of sessions, and their manager."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar

from tilewright.compiler.compiler import LazyDict


class Hook:
    """Callbacks around launches while a session measures; those with the highest priority come last."""

    priority: int = 0

    def init_handle(self, module: Any, function: Any, name: str, metadata_group: Any, hash: str) -> None:
        """Called after a kernel was loaded."""

    def enter(self, metadata: LazyDict) -> None:
        """Called before a launch."""

    def exit(self, metadata: LazyDict) -> None:
        """Called after a launch."""

    def activate(self) -> None:
        """Called when a session with this hook starts to measure."""

    def deactivate(self) -> None:
        """Called when no session with this hook measures any more."""

    def destroy_handle(self, module: Any, function: Any, name: str, metadata_group: Any, hash: str) -> None:
        """Called after a kernel was unloaded."""


class HookManager:
    """The hooks of all sessions, each called once a launch."""

    active_hooks: ClassVar[list[Hook]] = []
    session_hooks: ClassVar[dict[int, dict[Hook, bool]]] = defaultdict(dict)

    @staticmethod
    def register(hook: Hook, session: int) -> None:
        """Registers a hook that is called while a session measures."""
        known = [
            other
            for hooks in HookManager.session_hooks.values()
            for other in hooks
            if type(other) is type(hook)
        ]
        HookManager.session_hooks[session][known[0] if known else hook] = True
        HookManager._changed()

    @staticmethod
    def unregister(session: int | None = None) -> None:
        """Removes the hooks of a session, or all."""
        if session is None:
            HookManager.session_hooks.clear()
        else:
            HookManager.session_hooks.pop(session, None)
        HookManager._changed()

    @staticmethod
    def activate(session: int | None = None) -> None:
        """Enables the hooks of a session, or all."""
        HookManager._set(session, True)

    @staticmethod
    def deactivate(session: int | None = None) -> None:
        """Disables the hooks of a session, or all."""
        HookManager._set(session, False)

    @staticmethod
    def _set(session: int | None, is_active: bool) -> None:
        for number, hooks in HookManager.session_hooks.items():
            if session is None or number == session:
                for hook in hooks:
                    hooks[hook] = is_active
        HookManager._changed()

    @staticmethod
    def _changed() -> None:
        from tilewright import knobs

        before = HookManager.active_hooks
        active = {
            hook for hooks in HookManager.session_hooks.values() for hook, is_on in hooks.items() if is_on
        }
        HookManager.active_hooks = sorted(active, key=lambda hook: hook.priority)
        for hook in before:
            if hook not in active:
                hook.deactivate()
        for hook in HookManager.active_hooks:
            if hook not in before:
                hook.activate()
        chains = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
        for chain, function in zip(chains, (HookManager.enter, HookManager.exit), strict=True):
            if HookManager.active_hooks:
                chain.add(function)
            else:
                chain.remove(function)

    @staticmethod
    def enter(metadata: LazyDict) -> None:
        """Calls the hooks before a launch."""
        for hook in HookManager.active_hooks:
            hook.enter(metadata)

    @staticmethod
    def exit(metadata: LazyDict) -> None:
        """Calls the hooks after a launch, in the opposite order."""
        for hook in reversed(HookManager.active_hooks):
            hook.exit(metadata)
