"""The TLS context of one client: built from its options in a thread, rebuilt when files change.

The context is built when the client starts, so that a wrong file is reported there. Before each
connection the modification times of its files are compared. If one has changed, or the application
requests it, a new context is built for later connections; open connections keep the old one. If the
new files cannot be used, the old context stays in use and a warning is logged.

A private key that is given as text is passed to OpenSSL in memory where the system has anonymous
files (Linux), and otherwise in a file that only this user can read and that is removed at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

from kafka_async.config.spelling import option_error, spell, spell_given
from kafka_async.errors import InvalidConfigurationError
from kafka_async.secrets import Secret, SecretBytes

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Generator

    from kafka_async.config import ClientConfig
    from kafka_async.foundation.supervisor import Offload

logger = logging.getLogger("kafka_async.cluster")

_Stamps = tuple[tuple[int, int, int] | None, ...]
_PEM: Final = "-----BEGIN "
_END: Final = "-----END "
_DER: Final = re.compile(r"M[A-Za-z0-9+/=\s]{40,}")
"""A key or certificate in Base64 without its first and last line, which may be in any option."""
_ONE_LINE: Final = re.compile(
    r"(-----BEGIN [A-Z0-9 ]+-----)\s*([^-]+?)\s*(-----END [A-Z0-9 ]+-----)"
)


class TlsContext:
    """Owns the SSLContext of one client.

    Args:
        config: The client's options.
        offload: Runs functions that read files.
    """

    def __init__(self, config: ClientConfig, offload: Offload) -> None:
        self._config = config
        self._offload = offload
        self._context: ssl.SSLContext | None = config.ssl_context
        self._given = config.ssl_context is not None
        # One build at a time: connections that open together share the result.
        self._lock = asyncio.Lock()
        self._stamps: _Stamps = ()

    async def current(self) -> ssl.SSLContext:
        """Return the context for a new connection, rebuilt if its files have changed.

        Raises InvalidConfigurationError, with the option and the cause, if the first context cannot
        be built.
        """
        if self._given:
            return cast("ssl.SSLContext", self._context)
        async with self._lock:
            if self._context is None:
                # In a thread: reading files and parsing certificates takes milliseconds.
                self._stamps, self._context = await self._offload(_build, self._config)
            elif _paths(self._config):
                stamps = await self._offload(_stamps, self._config)
                if stamps != self._stamps:
                    await self._replace()
            return self._context

    async def reload(self) -> bool:
        """Read all files again; return False, after a warning, if they cannot be used."""
        if self._given:
            files = f"{spell('ssl_cafile')}, {spell('ssl_certfile')} and {spell('ssl_keyfile')}"
            raise option_error(
                "ssl_context",
                " is given, so that there are no files to reload: load certificates into it, or "
                f"give {files} in its place",
            )
        async with self._lock:
            return await self._replace()

    async def _replace(self) -> bool:
        # Before the files are read: a change in between is found by the next comparison.
        stamps = await self._offload(_stamps, self._config)
        try:
            self._stamps, self._context = await self._offload(_build, self._config)
        except InvalidConfigurationError as error:
            # The times are kept even if the files cannot be used, so that each change leads to one
            # warning. Not earlier, since a caller that is cancelled must leave the change to the
            # next one.
            self._stamps = stamps
            logger.warning("the certificates before stay in use, since %s", error)
            return False
        logger.info("TLS certificates were reloaded")
        return True


def server_name(host: str) -> str:
    """Return the name to check a certificate for, and to send (SNI)."""
    # Without the brackets and the zone of an IPv6 address, and the final dot of a full name:
    # certificates contain none of these.
    return host.removeprefix("[").removesuffix("]").partition("%")[0].removesuffix(".")


def is_pem(text: str) -> bool:
    """Return True if an option contains PEM text, and not the path of a file."""
    return _PEM in text


def _text_problem(text: str) -> str | None:
    """Return what is wrong with a text that is neither PEM nor a path, or None."""
    if not text.strip():
        return "is empty: give a file's path, or PEM text"
    if not is_pem(text):
        if _END not in text and not _DER.fullmatch(text):
            return None
        return "is PEM text without its first line: it begins with a line -----BEGIN ...-----"
    if "\\n" in text:
        return (
            "is PEM text with the characters \\n in place of line breaks: replace them, as with "
            'text.replace("\\\\n", "\\n")'
        )
    if _END not in text:
        return "is PEM text without its last line: it ends with a line -----END ...-----"
    return None


def _paths(config: ClientConfig) -> tuple[str | Secret, ...]:
    """Return the files among the options."""
    given = (config.ssl_cafile, config.ssl_certfile, config.ssl_keyfile)
    return tuple(each for each in given if each is not None and not is_pem(_plain(each)))


def _plain(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def _stamps(config: ClientConfig) -> _Stamps:
    """Return values that change with the files' contents; None for a file that does not exist."""
    return tuple(map(_stamp, _paths(config)))


def _stamp(path: str | Secret) -> tuple[int, int, int] | None:
    try:
        status = os.stat(_plain(path))
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _build(config: ClientConfig) -> tuple[_Stamps, ssl.SSLContext]:
    """Return a new context, and the state of the files before they were read."""
    import ssl  # imported here since it is slow, and only TLS needs it

    # Read first: a file that changes during the build is found at the next comparison.
    stamps = _stamps(config)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and host name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = config.ssl_check_hostname
    # Against CRIME, and against renegotiation by the peer.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    versions = config.ssl_enabled_protocols
    if "TLSv1.2" not in versions:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if "TLSv1.3" not in versions:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    load_authorities(context, config.ssl_cafile)
    if config.ssl_certfile is not None:
        _load_certificate(context, config)
    return stamps, context


def load_authorities(context: ssl.SSLContext, authorities: str | None) -> None:
    """Trust the certificates of the option ssl_cafile, or else the system's.

    Raises InvalidConfigurationError if there are none.
    """
    import ssl

    if authorities is None:
        context.load_default_certs()
        return
    # As in Java, each certificate of the file is trusted, even if it is not self-signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        if is_pem(authorities):
            context.load_verify_locations(cadata=_ascii(_with_lines(authorities)))
        else:
            context.load_verify_locations(cafile=authorities)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        if (problem := _text_problem(authorities)) is not None:
            raise option_error("ssl_cafile", f" {problem}") from error
        place = "the given text" if is_pem(authorities) else repr(authorities)
        raise option_error(
            "ssl_cafile",
            f": no certificates can be read from {place} ({_reason(error)}): give a file, or "
            "text, with one or more PEM certificates",
        ) from error


def _load_certificate(context: ssl.SSLContext, config: ClientConfig) -> None:
    failure: InvalidConfigurationError | None = None
    password = _PasswordSource(config.ssl_password)
    with (
        _file(config.ssl_certfile, "ssl_certfile") as certificate,
        _file(config.ssl_keyfile, "ssl_keyfile") as key,
    ):
        try:
            context.load_cert_chain(
                _plain(certificate or ""), None if key is None else _plain(key), password.read
            )
        except Exception as error:  # noqa: BLE001 (a function of the application was called)
            failure = _certificate_error(error, config, password)
    if failure is not None:
        # Raised outside the `except`: as a context, an exception of OpenSSL or of the function may
        # show the key's file.
        raise failure


class _PasswordSource:
    """Provides the key's password to OpenSSL, which would otherwise prompt for it."""

    def __init__(self, source: Secret | Callable[[], str | Secret] | None) -> None:
        self._source = source
        self.asked = False
        self.problem = ""

    def read(self) -> str:
        """Return the password; raise ValueError without the cause, which is in `problem`."""
        self.asked = True
        if self._source is None:
            self.problem = f"the private key is encrypted: give {spell('ssl_password')}"
        elif isinstance(self._source, Secret):
            return self._source.reveal()
        else:
            try:
                password = _secret_or_kind(self._source())
            except (Exception, SystemExit) as error:  # noqa: BLE001 (the application's function)
                raised = f"the function has raised {type(error).__name__}: check it"
                self.problem = f"{spell('ssl_password')}: {raised}"
            else:
                if isinstance(password, Secret):
                    return password.reveal()
                returned = f"the function has returned {password}, not a str"
                self.problem = f"{spell('ssl_password')}: {returned}"
        raise ValueError(self.problem)


def _secret_or_kind(password: object) -> Secret | str:
    """Return a password as a Secret, or the name of another value's type."""
    if isinstance(password, str):
        return Secret(password)
    return password if isinstance(password, Secret) else type(password).__name__


def _certificate_error(
    error: Exception, config: ClientConfig, password: _PasswordSource
) -> InvalidConfigurationError:
    """Return an error with the option that is wrong."""
    reason = getattr(error, "reason", None) or ""
    if password.problem:
        return InvalidConfigurationError(password.problem, option="ssl_password")
    if reason == "KEY_VALUES_MISMATCH":
        certificate = _with_place("ssl_certfile", config.ssl_certfile)
        return InvalidConfigurationError(
            f"{_with_place('ssl_keyfile', config.ssl_keyfile)} is not the private key of "
            f"{certificate}: check both",
            option="ssl_keyfile",
        )
    if password.asked:
        return option_error(
            "ssl_password",
            " does not decrypt the private key, or the key is damaged: check the password "
            f"({_reason(error)})",
        )
    return _malformed(config, _reason(error))


def _malformed(config: ClientConfig, reason: str) -> InvalidConfigurationError:
    """Return the error for a certificate and a key that OpenSSL cannot read."""
    # From the most specific cause to the general one.
    for name in ("ssl_certfile", "ssl_keyfile"):
        problem = _text_problem(_plain(getattr(config, name) or _PEM + _END))
        if problem is not None:
            return option_error(name, f" {problem}")
    certificate = _with_place("ssl_certfile", config.ssl_certfile)
    key = _with_place("ssl_keyfile", config.ssl_keyfile)
    option = "ssl_certfile"
    if not _contains(config.ssl_certfile, b"CERTIFICATE-----"):
        text = (
            f"{certificate} has no certificate in PEM form ({reason}): give the client's "
            "certificate, and the others of its chain after it"
        )
    elif config.ssl_keyfile is None and not _contains(config.ssl_certfile, b"PRIVATE KEY-----"):
        text = (
            f"{certificate} has no private key in PEM form ({reason}): give a file with the "
            f"certificate and the key, or the key as {spell('ssl_keyfile')}"
        )
    elif config.ssl_keyfile is not None and not _contains(config.ssl_keyfile, b"PRIVATE KEY-----"):
        option = "ssl_keyfile"
        text = (
            f"{key} has no private key in PEM form ({reason}): give the key of "
            f"{spell('ssl_certfile')}"
        )
    else:
        names = certificate if config.ssl_keyfile is None else f"{certificate} or {key}"
        text = (
            f"{names} cannot be used ({reason}): both must be in PEM form, and the certificates in "
            "the order of the chain, the client's first"
        )
    return InvalidConfigurationError(text, option=option)


def _contains(value: str | Secret | None, words: bytes) -> bool:
    """Return True if a file or PEM text contains these words; a missing file does not."""
    if value is None or is_pem(_plain(value)):
        return words.decode() in _plain(value or "")
    try:
        with open(_plain(value), "rb") as file:
            return words in SecretBytes(file.read()).reveal()
    except (OSError, ValueError):
        return False


def _place(value: str | Secret | None) -> str | None:
    """Return the path of an option for a message; None for text, which may be a key."""
    if value is None or is_pem(_plain(value)):
        return None
    is_path = os.path.isfile(_plain(value)) and not _DER.fullmatch(_plain(value))
    return repr(_plain(value)) if is_path else None


def _with_place(option: str, value: str | Secret | None) -> str:
    """Return the name of an option, with its path."""
    place = _place(value)
    return spell(option) if place is None else spell_given(option, place)


_OPENSSL: Final = re.compile(r"\[\w+(?:: \w+)?\] (.+) \(_ssl\.c:\d+\)")
_WORDS: Final = {
    "PEM_LIB": "not valid PEM",
    "NO_START_LINE": "no PEM text",
    "NO_CERTIFICATE_OR_CRL_FOUND": "no certificate found",
}
"""More useful wording for errors, by OpenSSL's name."""


def _reason(error: Exception) -> str:
    """Return the cause in words, without a path."""
    words = str(
        getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
    )
    if (match := _OPENSSL.fullmatch(words)) is not None:  # "[SSL] PEM lib (_ssl.c:3905)"
        words = match[1].upper().replace(" ", "_")
    return _WORDS.get(words, words)


@contextmanager
def _file(value: str | Secret | None, option: str) -> Generator[str | Secret | None, None, None]:
    """Yield the path of a file with the content of an option."""
    if value is None:
        yield None
    elif not is_pem(_plain(value)):
        # OpenSSL's own error for an unreadable file has no path and no cause.
        problem = _unreadable(value)
        if problem is not None:
            if (of_text := _text_problem(_plain(value))) is not None:
                raise option_error(option, f" {of_text}")
            raise option_error(
                option,
                f" cannot be read ({problem}): give the path of a PEM file that this user may read",
                value=_place(value) if isinstance(value, Secret) else repr(value),
            )
        yield value
    else:
        with _private_file(Secret(_with_lines(_plain(value)))) as path:
            yield path


def _unreadable(path: str | Secret) -> str | None:
    try:
        os.close(os.open(_plain(path), os.O_RDONLY))
    except (OSError, ValueError) as error:
        return _reason(error)
    return None


@contextmanager
def _private_file(content: Secret) -> Generator[str, None, None]:
    """Yield the path of a file with `content`, which exists only inside the `with`."""
    # Linux: an anonymous file, which no other process can open by name.
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("kafka-async", os.MFD_CLOEXEC)
        try:
            path = f"/proc/self/fd/{descriptor}"
            # Without /proc, as in some containers, OpenSSL could not open it.
            if os.path.exists(path):
                _write(descriptor, content)
                yield path
                return
        finally:
            os.close(descriptor)
    from tempfile import TemporaryDirectory  # imported here since few systems need it

    with TemporaryDirectory(prefix="kafka-async-") as directory:  # of mode 0700
        path = f"{directory}/key.pem"
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            _write(descriptor, content)
        finally:
            os.close(descriptor)
        yield path


def _write(descriptor: int, content: Secret) -> None:
    with os.fdopen(descriptor, "w", encoding="ascii", errors="replace", closefd=False) as file:
        file.write(content.reveal())


def _ascii(text: str) -> str:
    """Return PEM text for OpenSSL, which refuses other characters even in comments."""
    return text.encode("ascii", "replace").decode("ascii")


def _with_lines(text: str) -> str:
    """Return PEM text with the line breaks that OpenSSL needs.

    A properties file with continued lines results in a single line, which Java accepts.
    """
    if "\n" in text.strip():
        return text
    return _ONE_LINE.sub(_one_block, text)


def _one_block(block: re.Match[str]) -> str:
    return "\n".join((block[1], *block[2].split(), block[3], ""))
