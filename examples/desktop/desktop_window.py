"""The program as a window: `python desktop_window.py`. What its buttons do is in desktop_app.py."""

from __future__ import annotations

import tkinter
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from tkinter import ttk

import desktop_app

LOOK_MS = 50


def attempt(work: Callable[[], str]) -> str:
    try:
        return work()
    except desktop_app.Failed as failed:
        return str(failed)


class Window(tkinter.Tk):
    def __init__(self) -> None:
        super().__init__()
        self.title("Translator")
        self.said = tkinter.StringVar(value="…")
        self._results: SimpleQueue[str] = SimpleQueue()
        ttk.Label(self, textvariable=self.said, wraplength=360).pack(padx=32, pady=(32, 16))
        row = ttk.Frame(self)
        row.pack(padx=32, pady=(0, 32))
        actions = {"Sign in": desktop_app.sign_in, "Refresh": desktop_app.status, "Sign out": desktop_app.sign_out}
        self.buttons = {text: self._button(row, text, work) for text, work in actions.items()}
        self.start(desktop_app.status)

    def _button(self, row: ttk.Frame, text: str, work: Callable[[], str]) -> ttk.Button:
        button = ttk.Button(row, text=text, command=lambda: self.start(work))
        button.pack(side="left", padx=4)
        return button

    def start(self, work: Callable[[], str]) -> None:
        """Work in a thread: the window stays alive while the browser is open. Tk itself is used by one thread only."""
        for button in self.buttons.values():
            button.state(["disabled"])
        Thread(target=lambda: self._results.put(attempt(work)), daemon=True).start()
        self._show_result()

    def _show_result(self) -> None:
        try:
            self.said.set(self._results.get_nowait())
        except Empty:
            self.after(LOOK_MS, self._show_result)
            return
        for button in self.buttons.values():
            button.state(["!disabled"])


if __name__ == "__main__":
    Window().mainloop()
