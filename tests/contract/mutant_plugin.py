"""Pytest plugin that installs the mutant which the environment names."""

from __future__ import annotations

import os

from tests.contract.mutants import ENVIRONMENT, install

install(os.environ[ENVIRONMENT])
