"""A launch of the current trace, by the answers to the page of the visualizer."""

from __future__ import annotations

import json

import numpy as np

from tilewright import _native
from tilewright.viz import _session


class Traced:
    """A launch of the trace, by what the page asks for."""

    def __init__(self, launch=0):
        self.file = _native.TraceFile(_session.path())
        self.number = launch
        self.about = json.loads(self.file.launch(launch))
        self.ops = self.about["ops"]

    def events(self, program):
        return json.loads(self.file.program(self.number, program))["events"]

    def find(self, program, kind):
        """The numbers of the events of ops of a kind."""
        return [at for at, event in enumerate(self.events(program)) if self.ops[event[0]]["kind"] == kind]

    def value(self, program, event, role):
        op = self.ops[self.events(program)[event][0]]
        roles = [value["role"] for value in op["values"]]
        found = json.loads(self.file.value(self.number, program, event, roles.index(role)))
        return np.array([float(element) for element in found["elements"]]).reshape(found["shape"])

    def touched(self, program, event):
        return json.loads(self.file.touched(self.number, program, event))

    def overlaps(self, tensor):
        return json.loads(self.file.overlaps(self.number, tensor))

    def elements(self, tensor, after):
        return json.loads(self.file.elements(self.number, tensor, after))
