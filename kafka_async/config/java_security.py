"""Translates the properties of Java's client for TLS and SASL into options. Pure.

Names have underscores in place of dots. Class names select what is built in, and load nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from kafka_async.config.jaas import LoginModule, parse_jaas
from kafka_async.config.spelling import if_objects, option_error, spell
from kafka_async.secrets import Secret

if TYPE_CHECKING:
    from kafka_async.errors import InvalidConfigurationError

TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_REFERENCE: Final = re.compile(r"\$\{[^{}]*:[^{}]*\}|^\s*\$\{[^{}]*\}\s*$")
TRUSTSTORE_TO_PEM: Final = "keytool -list -rfc -keystore truststore.jks > ca.pem"
"""Command that writes all certificates of a trust store in Java's formats as PEM."""
JKS_TO_PKCS12: Final = (
    "keytool -importkeystore -srckeystore client.jks -destkeystore client.p12 -deststoretype PKCS12"
)
PKCS12_TO_PEM: Final = "openssl pkcs12 -in client.p12 -out client.pem"
"""Command that writes the key, encrypted, and the certificates of a key store as PEM."""
_KAFKA: Final = "org.apache.kafka.common.security."


def is_reference(value: object) -> bool:
    """Return whether a value looks like "${provider:path:key}", which Java's client expands."""
    if isinstance(value, Secret):
        return _REFERENCE.search(value.reveal()) is not None
    return isinstance(value, str) and _REFERENCE.search(value) is not None


def refuse_reference(name: str) -> NoReturn:
    """Raise for a value that looks like a reference to a config provider."""
    raise option_error(
        name,
        " looks like a reference to a variable or a config provider, ${...}, and nothing is "
        "expanded: fill in the value before, or read it in the application and pass it",
    )


def read_security_properties(given: dict[str, object]) -> None:
    """Replace Java's properties for TLS and SASL by options, in place.

    Raises InvalidConfigurationError for properties that have no meaning here, such as key stores in
    Java's formats and names of classes.
    """
    for name, reason in _REFUSED.items():
        if name in given:
            raise option_error(name, f" is not supported: {_reason(reason)}")
    protocol = given.get("security_protocol")
    if isinstance(protocol, str):
        given["security_protocol"] = protocol.upper()  # In Java, case does not count.
    _read_truststore(given)
    _read_keystore(given)
    _read_checks(given)
    _read_versions(given)
    _read_classes(given)
    jaas = given.pop("sasl_jaas_config", None)
    if jaas is not None:
        if not isinstance(jaas, str | Secret):
            raise option_error("sasl_jaas_config", " must be a str")
        _read_login_module(given, parse_jaas(jaas if isinstance(jaas, Secret) else Secret(jaas)))


def _reason(of: Callable[[], str]) -> str:
    """Return what to do in place of a class; it is refused without that if no object can be."""
    return if_objects(of()) or "leave it out"


def _own_context() -> str:
    return f"it names a class of Java's; give {spell('ssl_context')} for TLS of another kind"


_REFUSED: Final[Mapping[str, Callable[[], str]]] = {
    "sasl_login_class": lambda: (
        f"classes of Java are not loaded; pass an object as {spell('sasl_mechanism')}"
    ),
    "ssl_cipher_suites": lambda: f"give {spell('ssl_context')} with set_ciphers",
    "ssl_engine_factory_class": _own_context,
    "ssl_keymanager_algorithm": _own_context,
    "ssl_provider": _own_context,
    "ssl_secure_random_implementation": _own_context,
    "ssl_trustmanager_algorithm": _own_context,
}


# -- TLS ------------------------------------------------------------------------------------------


def _read_truststore(given: dict[str, object]) -> None:
    kind = given.pop("ssl_truststore_type", None)
    location = given.pop("ssl_truststore_location", None)
    certificates = given.pop("ssl_truststore_certificates", None)
    password = given.pop("ssl_truststore_password", None)
    if location is None and certificates is None:
        if password is not None:
            raise _without("ssl_truststore_password", "ssl_truststore_location")
        return
    _check_pem("truststore", kind, location, password)
    if location is not None and certificates is not None:
        raise option_error(
            "ssl_truststore_location",
            f" and {spell('ssl_truststore_certificates')} are both given: give one",
        )
    if location is not None:
        _set(given, "ssl_cafile", location, "ssl_truststore_location")
    else:
        _set(given, "ssl_cafile", certificates, "ssl_truststore_certificates")


def _without(option: str, other: str) -> InvalidConfigurationError:
    return option_error(option, f" is given without {spell(other)}: leave it out")


def _read_keystore(given: dict[str, object]) -> None:
    kind = given.pop("ssl_keystore_type", None)
    location = given.pop("ssl_keystore_location", None)
    chain = given.pop("ssl_keystore_certificate_chain", None)
    key = given.pop("ssl_keystore_key", None)
    password = given.pop("ssl_keystore_password", None)
    key_password = given.pop("ssl_key_password", None)
    if key_password is not None:
        _set(given, "ssl_password", key_password, "ssl_key_password")
    if location is None and chain is None and key is None:
        if password is not None:
            raise _without("ssl_keystore_password", "ssl_keystore_location")
        return
    _check_pem("keystore", kind, location, password)
    if location is not None and (chain is not None or key is not None):
        raise option_error(
            "ssl_keystore_location",
            f" is given besides {spell('ssl_keystore_certificate_chain')} or "
            f"{spell('ssl_keystore_key')}: give the file, or the two texts",
        )
    if location is not None:
        _set(given, "ssl_certfile", location, "ssl_keystore_location")
        return
    if chain is None or key is None:
        raise option_error(
            "ssl_keystore_certificate_chain",
            f" and {spell('ssl_keystore_key')} need each other: give both",
        )
    _set(given, "ssl_certfile", chain, "ssl_keystore_certificate_chain")
    _set(given, "ssl_keyfile", key, "ssl_keystore_key")


def _check_pem(store: str, kind: object, location: object, password: object) -> None:
    """Raise unless a key store or trust store is in PEM form."""
    if not isinstance(kind, str) or kind.upper() != "PEM":
        convert = f"`{TRUSTSTORE_TO_PEM}`"
        if store == "keystore":
            convert = f"`{PKCS12_TO_PEM}` (JKS first with `{JKS_TO_PKCS12}`)"
        problem = "is missing, which means JKS" if kind is None else "must be PEM"
        form, place = spell(f"ssl_{store}_type", "PEM"), spell(f"ssl_{store}_location")
        raise option_error(
            f"ssl_{store}_type",
            f" {problem}: only Java reads JKS and PKCS12 key stores. Convert the store with "
            f"{convert}, and set {form} and {place}",
        )
    if password is not None:
        raise option_error(
            f"ssl_{store}_password",
            f" does not apply to PEM: leave it out; {spell('ssl_key_password')} decrypts a private "
            "key",
        )
    if location is not None and not isinstance(location, str | Secret):
        raise option_error(f"ssl_{store}_location", " must be a str")


def _set(given: dict[str, object], name: str, value: object, source: str) -> None:
    """Set an option, unless it is given already."""
    if name in given:
        raise option_error(source, f" and {spell(name)} are the same: give one")
    given[name] = value


_IDENTIFICATION: Final = "ssl_endpoint_identification_algorithm"


def _read_checks(given: dict[str, object]) -> None:
    if _IDENTIFICATION not in given:
        return
    algorithm = given.pop(_IDENTIFICATION)
    if not isinstance(algorithm, str) or algorithm.strip().lower() not in ("", "https"):
        raise option_error(
            _IDENTIFICATION, " must be https, or empty for no check of the broker's host name"
        )
    _set(given, "ssl_check_hostname", bool(algorithm.strip()), _IDENTIFICATION)


def _read_versions(given: dict[str, object]) -> None:
    """Combine ssl.protocol, the newest version, with ssl.enabled.protocols."""
    protocol = given.pop("ssl_protocol", None)
    enabled = given.get("ssl_enabled_protocols")
    if protocol is None:
        return
    if protocol not in ("TLS", *TLS_VERSIONS):
        raise option_error(
            "ssl_protocol", " must be TLSv1.3 or TLSv1.2: older versions are never used"
        )
    if protocol != "TLSv1.2":
        return
    names = _names(enabled) if enabled is not None else TLS_VERSIONS
    if "TLSv1.2" not in names:
        raise option_error(
            "ssl_protocol",
            f" contradicts {spell('ssl_enabled_protocols')}, which lacks it: give one",
            value="TLSv1.2",
        )
    given["ssl_enabled_protocols"] = ("TLSv1.2",)


def _names(value: object) -> Sequence[object]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return value if isinstance(value, list | tuple) else ()  # pyright: ignore[reportUnknownVariableType]


# -- classes --------------------------------------------------------------------------------------


_HANDLERS: Final[Mapping[str, tuple[str, ...]]] = {
    "sasl_login_callback_handler_class": (
        f"{_KAFKA}oauthbearer.OAuthBearerLoginCallbackHandler",
        f"{_KAFKA}oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    ),
    "sasl_client_callback_handler_class": (
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    ),
}
"""By property: the classes whose work is built in."""
_RETRIEVERS: Final[Mapping[str, str | None]] = {
    f"{_KAFKA}oauthbearer.DefaultJwtRetriever": None,
    f"{_KAFKA}oauthbearer.ClientCredentialsJwtRetriever": "client_credentials",
    f"{_KAFKA}oauthbearer.JwtBearerJwtRetriever": "jwt_bearer",
}
_TOKEN_URL: Final = "sasl_oauthbearer_token_endpoint_url"


def _read_classes(given: dict[str, object]) -> None:
    """Recognize the classes whose work is built in, and refuse others."""
    for name, known in _HANDLERS.items():
        handler = given.pop(name, None)
        if handler is None:
            continue
        if handler not in known:
            objects = f"pass {spell('sasl_token_provider')}, or an object as "
            advice = if_objects(f"{objects}{spell('sasl_mechanism')}") or "leave it out"
            raise option_error(
                name,
                f" names a class that is not built in, and classes are not loaded: {advice}",
            )
        if name == "sasl_login_callback_handler_class" and _TOKEN_URL not in given:
            raise option_error(name, f" needs {spell(_TOKEN_URL)}: give the issuer's URL")
    retriever = given.pop("sasl_oauthbearer_jwt_retriever_class", None)
    if retriever is None:
        return
    if not isinstance(retriever, str) or retriever not in _RETRIEVERS:
        provider = f": pass {spell('sasl_token_provider')} for another origin of tokens"
        raise option_error(
            "sasl_oauthbearer_jwt_retriever_class",
            " must name DefaultJwtRetriever, ClientCredentialsJwtRetriever or "
            f"JwtBearerJwtRetriever{if_objects(provider)}",
        )
    if (grant := _RETRIEVERS[retriever]) is not None:
        _set(given, "sasl_oauthbearer_jwt_retriever", grant, "sasl_oauthbearer_jwt_retriever_class")


# -- login modules --------------------------------------------------------------------------------


class _Module(NamedTuple):
    """The meaning of a login module's options.

    Attributes:
        mechanisms: The mechanisms that it serves.
        read: Returns options of this client; raises for a value that has no meaning here.
        names: The names of its options.
    """

    mechanisms: tuple[str, ...]
    read: Callable[[Mapping[str, Secret]], Mapping[str, object]]
    names: tuple[str, ...]


def _text(options: Mapping[str, Secret], name: str) -> str | None:
    """Return the text of an option that is not secret."""
    return options[name].reveal() if name in options else None


def _flag(options: Mapping[str, Secret], name: str) -> bool | None:
    value = options.get(name)
    return None if value is None else value.reveal().strip().lower() == "true"


def _plain(options: Mapping[str, Secret]) -> Mapping[str, object]:
    return {
        "sasl_username": _text(options, "username"),
        "sasl_password": options.get("password"),
    }


def _scram(options: Mapping[str, Secret]) -> Mapping[str, object]:
    return {**_plain(options), "sasl_delegation_token": _flag(options, "tokenauth")}


_EXTENSION: Final = "extension_"


def _oauthbearer(options: Mapping[str, Secret]) -> Mapping[str, object]:
    if any(name.startswith("unsecuredLogin") for name in options):
        provider = f", or pass {spell('sasl_token_provider')}"
        raise option_error(
            "sasl_jaas_config",
            " asks for unsecured tokens, which no production broker accepts: give "
            f"{spell(_TOKEN_URL)}{if_objects(provider)}",
        )
    extensions = {
        name.removeprefix(_EXTENSION): _text(options, name)
        for name in options
        if name.startswith(_EXTENSION)
    }
    return {
        "sasl_oauthbearer_client_credentials_client_id": _text(options, "clientId"),
        "sasl_oauthbearer_client_credentials_client_secret": options.get("clientSecret"),
        "sasl_oauthbearer_scope": _text(options, "scope"),
        "sasl_oauthbearer_extensions": extensions or None,
    }


def _kerberos(options: Mapping[str, Secret]) -> Mapping[str, object]:
    keytab = _text(options, "keyTab")
    if _flag(options, "useKeyTab") and keytab is None:
        raise option_error(
            "sasl_jaas_config", " has useKeyTab=true without keyTab: name the keytab's file"
        )
    if _flag(options, "useKeyTab") is False:
        keytab = None
    return {
        "sasl_kerberos_service_name": _text(options, "serviceName"),
        "sasl_kerberos_principal": _text(options, "principal"),
        "sasl_kerberos_keytab": keytab,
    }


def _msk_iam(options: Mapping[str, Secret]) -> Mapping[str, object]:
    return {}


_MODULES: Final[Mapping[str, _Module]] = {
    f"{_KAFKA}plain.PlainLoginModule": _Module(("PLAIN",), _plain, ("username", "password")),
    f"{_KAFKA}scram.ScramLoginModule": _Module(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"), _scram, ("username", "password", "tokenauth")
    ),
    f"{_KAFKA}oauthbearer.OAuthBearerLoginModule": _Module(
        ("OAUTHBEARER",), _oauthbearer, ("clientId", "clientSecret", "scope", "extension_NAME")
    ),
    "com.sun.security.auth.module.Krb5LoginModule": _Module(
        ("GSSAPI",),
        _kerberos,
        (
            *("serviceName", "principal", "keyTab", "useKeyTab", "useTicketCache", "storeKey"),
            *("doNotPrompt", "refreshKrb5Config", "renewTGT", "isInitiator", "debug"),
        ),
    ),
    "software.amazon.msk.auth.iam.IAMLoginModule": _Module(("AWS_MSK_IAM",), _msk_iam, ()),
}
"""Login modules whose work is built in. Some others, such as JndiLoginModule, run foreign code."""


def _read_login_module(given: dict[str, object], found: LoginModule) -> None:
    """Set the options that a login module stands for."""
    module = _MODULES.get(found.class_name)
    if module is None:
        known = ", ".join(name.rpartition(".")[2] for name in _MODULES)
        raise option_error(
            "sasl_jaas_config",
            f" names a login module that is not allowed: only {known} are known, by Kafka's, "
            "Java's or Amazon's full name, and no class is loaded",
        )
    short = found.class_name.rpartition(".")[2]
    if module.mechanisms == ("GSSAPI",):
        given.setdefault("sasl_mechanism", "GSSAPI")  # as in Java
    mechanism = given.get("sasl_mechanism")
    if mechanism not in module.mechanisms:
        raise option_error(
            "sasl_jaas_config",
            f" has {short}, which is for {spell('sasl_mechanism', *module.mechanisms)}: set "
            f"{spell('sasl_mechanism')}, or change the login module",
        )
    if any(map(is_reference, found.options.values())):
        refuse_reference("sasl_jaas_config")
    options = module.read(found.options)
    for name in found.options:
        prefixed = name.startswith(_EXTENSION) and "extension_NAME" in module.names
        if name not in module.names and not prefixed:
            names = f"its options are {', '.join(module.names)}" if module.names else "it has none"
            advice = "" if module.names else ", and the AWS environment chooses the credentials"
            raise option_error(
                "sasl_jaas_config",
                f" has an option that {short} does not have here: {names}{advice}",
            )
    for name, value in options.items():
        if value is None or (name in given and given[name] == value):
            continue
        _set(given, name, value, "sasl_jaas_config")
