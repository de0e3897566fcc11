"""A Kerberos realm for tests: a key distribution center of MIT Kerberos on 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from kafka_async.testing.backends.nodes import free_ports

NAME = "KAFKA.TEST"
START_TIMEOUT = 30.0
"""Seconds."""
COMMANDS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "kdestroy")


def missing_commands() -> list[str]:
    """Return the commands of Kerberos that are not installed."""
    return [name for name in COMMANDS if find(name) is None]


def find(command: str) -> str | None:
    """Return the path of a command; those for administrators are in /usr/sbin."""
    return shutil.which(command, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Realm:
    """Runs a key distribution center with its files in a directory.

    Attributes:
        variables: Environment variables by which the Kerberos library finds the realm.
        config: The path of krb5.conf.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        self.config = directory / "krb5.conf"
        self.variables = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{directory}/credentials",
        }
        self.config.write_text(
            f"[libdefaults]\n default_realm = {NAME}\n dns_lookup_realm = false\n"
            " dns_lookup_kdc = false\n dns_canonicalize_hostname = false\n rdns = false\n"
            " udp_preference_limit = 1\n"
            f"[realms]\n {NAME} = {{\n  kdc = 127.0.0.1:{self._port}\n }}\n"
        )
        (directory / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self._port}\n"
            f" kdc_tcp_listen = 127.0.0.1:{self._port}\n"
            f"[realms]\n {NAME} = {{\n  database_name = {directory}/principal\n"
            f"  key_stash_file = {directory}/stash\n  acl_file = {directory}/acl\n }}\n"
            f"[logging]\n kdc = FILE:{directory}/kdc.log\n default = FILE:{directory}/kdc.log\n"
        )

    def __enter__(self) -> Self:
        self.run("kdb5_util", "create", "-s", "-r", NAME, "-P", "master-password")
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the key distribution center and wait until it accepts connections."""
        command = find("krb5kdc")
        assert command is not None
        self._process = subprocess.Popen(
            [command, "-n", "-r", NAME],
            env={**os.environ, **self.variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                assert self._process.poll() is None, (self._directory / "kdc.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """Stop the key distribution center."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None

    def keytab(self, principal: str) -> Path:
        """Create a principal and return the file of its key."""
        path = self._directory / f"{principal.replace('/', '-')}.keytab"
        self.run("kadmin.local", "-r", NAME, "-q", f"addprinc -randkey {principal}")
        self.run("kadmin.local", "-r", NAME, "-q", f"ktadd -k {path} {principal}")
        return path

    def login(self, principal: str, keytab: Path) -> None:
        """Put a ticket of a principal into the credential cache."""
        self.run("kinit", "-k", "-t", str(keytab), principal)

    def logout(self) -> None:
        """Remove the tickets from the credential cache."""
        self.run("kdestroy", "-q")

    def run(self, command: str, *arguments: str) -> None:
        """Run a command of Kerberos that must succeed."""
        path = find(command)
        assert path is not None
        finished = subprocess.run(
            [path, *arguments],
            env={**os.environ, **self.variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT,
            check=False,
        )
        assert finished.returncode == 0, f"{command}: {finished.stdout}{finished.stderr}"
