"""Tests of Java's properties for TLS and SASL, and of options that contradict each other."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from kafka_async.config import ClientConfig, ConsumerConfig, ProducerConfig
from kafka_async.errors import InvalidConfigurationError
from kafka_async.secrets import Secret

pytestmark = pytest.mark.one_kernel
KAFKA = "org.apache.kafka.common.security"
PLAIN = f"{KAFKA}.plain.PlainLoginModule"
SCRAM = f"{KAFKA}.scram.ScramLoginModule"
OAUTH = f"{KAFKA}.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
MSK = "software.amazon.msk.auth.iam.IAMLoginModule"
CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\ngeheim\n-----END PRIVATE KEY-----\n"
URL = "https://issuer.example/token"


def read(**properties: Any) -> ClientConfig:
    """Return the configuration of Java's properties, whose dots are underscores here."""
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return ClientConfig.from_properties({"bootstrap.servers": "a:1", **given})


def shown(config: ClientConfig) -> dict[str, Any]:
    """Return the options of TLS and SASL that differ from their defaults, secrets revealed."""
    plain = ClientConfig("a:1")
    found: dict[str, Any] = {}
    for name, value in vars(config).items():
        if name.startswith(("ssl_", "sasl_")) and value != getattr(plain, name):
            found[name] = value.reveal() if isinstance(value, Secret) else value
    return found


# -- TLS ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, {}),
        (
            {"ssl_truststore_type": "PEM", "ssl_truststore_location": "/ca.pem"},
            {"ssl_cafile": "/ca.pem"},
        ),
        (
            {"ssl_truststore_type": "pem", "ssl_truststore_certificates": CA},
            {"ssl_cafile": CA},
        ),
        (
            {
                "ssl_keystore_type": "PEM",
                "ssl_keystore_location": "/both.pem",
                "ssl_key_password": "geheim",
            },
            {"ssl_certfile": "/both.pem", "ssl_password": "geheim"},
        ),
        (
            {
                "ssl_keystore_type": "PEM",
                "ssl_keystore_certificate_chain": CA,
                "ssl_keystore_key": KEY,
            },
            {"ssl_certfile": CA, "ssl_keyfile": KEY},
        ),
        ({"ssl_truststore_type": "JKS", "ssl_keystore_type": "PKCS12"}, {}),
        ({"ssl_endpoint_identification_algorithm": ""}, {"ssl_check_hostname": False}),
        ({"ssl_endpoint_identification_algorithm": "HTTPS"}, {}),
        ({"ssl_protocol": "TLSv1.3"}, {}),
        ({"ssl_protocol": "TLS"}, {}),
        ({"ssl_protocol": "TLSv1.2"}, {"ssl_enabled_protocols": ("TLSv1.2",)}),
        ({"ssl_enabled_protocols": "TLSv1.3"}, {"ssl_enabled_protocols": ("TLSv1.3",)}),
        ({"ssl_enabled_protocols": "TLSv1.2,TLSv1.3"}, {}),
        (
            {"ssl_protocol": "TLSv1.2", "ssl_enabled_protocols": "TLSv1.2,TLSv1.3"},
            {"ssl_enabled_protocols": ("TLSv1.2",)},
        ),
    ],
)
def test_reads_properties_of_tls(properties: dict[str, Any], expected: dict[str, Any]) -> None:
    assert shown(read(security_protocol="SSL", **properties)) == expected


def test_reads_the_security_protocol_without_regard_to_case_as_java_does() -> None:
    assert read(security_protocol="ssl").security_protocol == "SSL"


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"ssl_truststore_location": "/ca.jks"}, "ssl.truststore.type is missing.*keytool"),
        (
            {"ssl_truststore_type": "JKS", "ssl_truststore_location": "/ca.jks"},
            "ssl.truststore.type must be PEM.*keytool -list -rfc",
        ),
        (
            {"ssl_keystore_type": "PKCS12", "ssl_keystore_location": "/a.p12"},
            "ssl.keystore.type must be PEM.*openssl pkcs12 .*keytool -importkeystore",
        ),
        ({"ssl_truststore_password": "geheim"}, "without ssl.truststore.location"),
        ({"ssl_keystore_password": "geheim"}, "without ssl.keystore.location"),
        (
            {
                "ssl_truststore_type": "PEM",
                "ssl_truststore_location": "/ca.pem",
                "ssl_truststore_password": "geheim",
            },
            "ssl.truststore.password does not apply to PEM",
        ),
        (
            {
                "ssl_truststore_type": "PEM",
                "ssl_truststore_location": "/ca.pem",
                "ssl_truststore_certificates": CA,
            },
            "both given",
        ),
        (
            {
                "ssl_keystore_type": "PEM",
                "ssl_keystore_location": "/a.pem",
                "ssl_keystore_key": KEY,
            },
            "besides",
        ),
        ({"ssl_keystore_type": "PEM", "ssl_keystore_key": KEY}, "need each other"),
        ({"ssl_key_password": "geheim"}, "ssl.password is given without ssl.certfile"),
        ({"ssl_endpoint_identification_algorithm": "LDAPS"}, "must be https, or empty"),
        ({"ssl_protocol": "TLSv1.1"}, "must be TLSv1.3 or TLSv1.2"),
        ({"ssl_protocol": "TLSv1.2", "ssl_enabled_protocols": "TLSv1.3"}, "contradicts"),
        ({"ssl_enabled_protocols": "TLSv1.2,TLSv1.1"}, "'TLSv1.1': only TLSv1.2 and TLSv1.3"),
        ({"ssl_cipher_suites": "A"}, "set_ciphers"),
        ({"ssl_engine_factory_class": "a.B"}, "is not supported"),
        (
            {
                "ssl_truststore_type": "PEM",
                "ssl_truststore_location": "/ca.pem",
                "ssl_cafile": "/b.pem",
            },
            "ssl.truststore.location and ssl.cafile are the same",
        ),
    ],
)
def test_refuses_properties_of_tls(properties: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=words) as raised:
        read(security_protocol="SSL", **properties)
    assert "geheim" not in str(raised.value)


# -- SASL -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mechanism", "jaas", "expected"),
    [
        (
            "PLAIN",
            f'{PLAIN} required username="alice" password="geheim";',
            {"sasl_username": "alice", "sasl_password": "geheim"},
        ),
        (
            "SCRAM-SHA-512",
            f'{SCRAM} required username="id" password="hmac" tokenauth="true";',
            {"sasl_username": "id", "sasl_password": "hmac", "sasl_delegation_token": True},
        ),
        (
            "SCRAM-SHA-256",
            f'{SCRAM} required username="a" password="b" tokenauth=false;',
            {"sasl_username": "a", "sasl_password": "b"},
        ),
        (
            "OAUTHBEARER",
            f'{OAUTH} required clientId="c" clientSecret="s" scope="k" extension_logicalCluster="l"'
            ' extension_identityPoolId="p";',
            {
                "sasl_oauthbearer_client_credentials_client_id": "c",
                "sasl_oauthbearer_client_credentials_client_secret": "s",
                "sasl_oauthbearer_scope": "k",
                "sasl_oauthbearer_extensions": {"logicalCluster": "l", "identityPoolId": "p"},
            },
        ),
        ("OAUTHBEARER", f"{OAUTH} required;", {}),
        (
            "GSSAPI",
            f'{KERBEROS} required useKeyTab=true storeKey=true keyTab="/a.keytab" '
            'principal="a@B" serviceName="broker";',
            {
                "sasl_kerberos_keytab": "/a.keytab",
                "sasl_kerberos_principal": "a@B",
                "sasl_kerberos_service_name": "broker",
            },
        ),
        ("GSSAPI", f"{KERBEROS} required useTicketCache=true;", {}),
        ("GSSAPI", f'{KERBEROS} required useKeyTab=false keyTab="/a.keytab";', {}),
        ("AWS_MSK_IAM", f"{MSK} required;", {}),
    ],
)
def test_reads_login_modules_as_data(mechanism: str, jaas: str, expected: dict[str, Any]) -> None:
    for given in (jaas, Secret(jaas)):
        found = shown(
            read(security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_jaas_config=given)
        )
        assert found == {"sasl_mechanism": mechanism, **expected}


def test_kerberos_is_the_mechanism_of_its_login_module_as_in_java() -> None:
    found = read(security_protocol="SASL_SSL", sasl_jaas_config=f"{KERBEROS} required;")
    assert found.sasl_mechanism == "GSSAPI"
    found = read(security_protocol="SASL_SSL", sasl_mechanism="GSSAPI",
                 sasl_kerberos_service_name="broker")  # fmt: skip
    assert found.sasl_kerberos_service_name == "broker"


@pytest.mark.parametrize(
    ("mechanism", "jaas", "words"),
    [
        ("PLAIN", "com.sun.security.auth.module.JndiLoginModule required;", "not allowed"),
        ("PLAIN", "com.sun.security.auth.module.LdapLoginModule required;", "not allowed"),
        ("PLAIN", "a.PlainLoginModule required;", "not allowed"),
        ("PLAIN", f'{SCRAM} required username="a" password="geheim";', "for sasl.mechanism=SCRAM"),
        (None, f'{PLAIN} required username="a" password="geheim";', "for sasl.mechanism=PLAIN: s"),
        ("PLAIN", f'{PLAIN} required usrname="a" password="geheim";', "options are username, pa"),
        ("PLAIN", f'{PLAIN} required user_alice="geheim";', "options are username, password"),
        ("OAUTHBEARER", f'{OAUTH} required unsecuredLoginStringClaim_sub="a";', "unsecured tokens"),
        ("GSSAPI", f"{KERBEROS} required useKeyTab=true;", "without keyTab"),
        ("GSSAPI", f'{KERBEROS} required ticketCache="/tmp/x";', "options are serviceName"),
        ("AWS_MSK_IAM", f'{MSK} required awsProfileName="a";', "AWS environment"),
        ("PLAIN", f'{PLAIN} required password="geheim', "quote without its end"),
        ("PLAIN", 5, "sasl.jaas.config must be a str"),
    ],
)
def test_refuses_other_login_modules(mechanism: str | None, jaas: Any, words: str) -> None:
    named = {} if mechanism is None else {"sasl_mechanism": mechanism}
    with pytest.raises(InvalidConfigurationError, match=words) as raised:
        read(security_protocol="SASL_SSL", sasl_jaas_config=jaas, **named)
    assert "geheim" not in str(raised.value)


OIDC = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}


@pytest.mark.parametrize("package", ["oauthbearer", "oauthbearer.secured"])
def test_recognizes_the_handler_that_requests_tokens(package: str) -> None:
    handler = f"{KAFKA}.{package}.OAuthBearerLoginCallbackHandler"
    jaas = f'{OAUTH} required clientId="c" clientSecret="s";'
    given = {**OIDC, "sasl_jaas_config": jaas, "sasl_login_callback_handler_class": handler}
    found = read(**given, sasl_oauthbearer_token_endpoint_url=URL)
    assert found.sasl_oauthbearer_token_endpoint_url == URL
    with pytest.raises(InvalidConfigurationError, match=r"needs sasl\.oauthbearer\.token\.endpoi"):
        read(**given)


@pytest.mark.parametrize(
    ("name", "grant"),
    [
        ("DefaultJwtRetriever", "client_credentials"),
        ("ClientCredentialsJwtRetriever", "client_credentials"),
        ("JwtBearerJwtRetriever", "jwt_bearer"),
    ],
)
def test_reads_the_grant_and_client_credentials(name: str, grant: str) -> None:
    found = read(
        **OIDC,
        sasl_oauthbearer_token_endpoint_url=URL,
        sasl_oauthbearer_jwt_retriever_class=f"{KAFKA}.oauthbearer.{name}",
        sasl_oauthbearer_client_credentials_client_id="c",
        sasl_oauthbearer_client_credentials_client_secret="s",
        sasl_oauthbearer_scope="k",
        sasl_oauthbearer_assertion_claim_exp_seconds="60",
        sasl_oauthbearer_assertion_file="a.jwt",
        sasl_oauthbearer_assertion_template_file="t.json",
    )
    assert found.sasl_oauthbearer_jwt_retriever == grant
    assert found.sasl_oauthbearer_client_credentials_client_secret == Secret("s")
    assert found.sasl_oauthbearer_assertion_claim_exp_seconds == 60
    assert found.sasl_oauthbearer_assertion_file == "a.jwt"
    assert found.sasl_oauthbearer_assertion_template_file == "t.json"


@pytest.mark.parametrize(
    "properties",
    [
        {"sasl_login_callback_handler_class": "com.example.Handler"},
        {"sasl_client_callback_handler_class": "com.example.Handler"},
        {"sasl_login_class": "com.example.Login"},
        {"sasl_oauthbearer_jwt_retriever_class": "com.example.Retriever"},
        {"sasl_oauthbearer_jwt_retriever_class": f"{KAFKA}.oauthbearer.FileJwtRetriever"},
        {"sasl_oauthbearer_jwt_retriever_class": 5},
    ],
)
def test_refuses_names_of_classes(properties: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"pass (sasl.token.provider|an object)"):
        read(**OIDC, sasl_oauthbearer_token_endpoint_url=URL, **properties)


def test_accepts_the_handler_of_every_recipe_for_msk() -> None:
    found = read(
        security_protocol="SASL_SSL",
        sasl_mechanism="AWS_MSK_IAM",
        sasl_jaas_config=f"{MSK} required;",
        sasl_client_callback_handler_class="software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    )
    assert shown(found) == {"sasl_mechanism": "AWS_MSK_IAM"}


# -- references to config providers ----------------------------------------------------------------


@pytest.mark.parametrize("role", [ClientConfig, ProducerConfig, ConsumerConfig])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.password", "${file:/etc/secrets:password}"),
        ("sasl.password", "${env:PASSWORD}"),
        ("sasl.password", "${PASSWORD}"),
        ("sasl.username", "${vault:path:user}"),
        ("client.id", "a-${env:NAME}"),
        ("sasl.jaas.config", f'{PLAIN} required password="${{file:/x:y}}";'),
        ("sasl.jaas.config", f'{PLAIN} required username="a" password="${{PASSWORD}}";'),
        ("sasl.jaas.config", f"{PLAIN} required username=a password=${{PASSWORD}};"),
        ("sasl.jaas.config", f"{PLAIN} required username='${{USER}}' password=b;"),
        ("bootstrap.servers", "${env:SERVERS}"),
    ],
)
def test_never_expands_references(role: type[ClientConfig], name: str, value: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"{name} looks like a reference") as raised:
        role.from_properties({"bootstrap.servers": "a:1", "sasl.mechanism": "PLAIN", name: value})
    assert "fill in the value before" in str(raised.value)
    assert value not in str(raised.value)


def test_takes_an_option_that_looks_like_a_reference_as_it_is() -> None:
    password = "${file:/etc/secrets:password}"
    found = ClientConfig(
        "a:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="a",
        sasl_password=password,
    )
    assert found.sasl_password == Secret(password)


@pytest.mark.parametrize("password", ["a$b{c}", "$", "${", "a${b}c", "{a:b}"])
def test_takes_other_passwords_as_they_are(password: str) -> None:
    found = read(
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="a",
        sasl_password=password,
    )
    assert found.sasl_password == Secret(password)


# -- options that contradict each other ------------------------------------------------------------


class Custom:
    name = "CUSTOM"

    def authenticate(self, context: object) -> None: ...


async def provider() -> Any: ...


PASSWORD = {"sasl_username": "alice", "sasl_password": "geheim"}
SASL = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", **PASSWORD}
TLS = {"security_protocol": "SSL"}
CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssl_cafile": "a"}, 'ssl_cafile is given but .* PLAINTEXT.*set security_protocol="SSL"'),
        ({"ssl_check_hostname": False}, "ssl_check_hostname is given but"),
        ({"ssl_cafile": "a", **PASSWORD}, 'set security_protocol="SASL_SSL"'),
        (
            {"security_protocol": "SASL_PLAINTEXT", "ssl_cafile": "a"},
            'set security_protocol="SASL_SSL"',
        ),
        (PASSWORD, 'sasl_username is given but .* PLAINTEXT.*set security_protocol="SASL_SSL"'),
        ({**TLS, "sasl_mechanism": "PLAIN"}, "sasl_mechanism is given but .* SSL"),
        ({"security_protocol": "SASL_SSL"}, "needs sasl_mechanism"),
        ({"security_protocol": "SASL_PLAINTEXT", **PASSWORD}, "needs sasl_mechanism"),
        ({**TLS, "ssl_context": CONTEXT, "ssl_cafile": "a"}, "ssl_cafile is given besides ssl_c"),
        ({**TLS, "ssl_context": CONTEXT, "ssl_check_hostname": False}, "besides ssl_context"),
        ({**TLS, "ssl_keyfile": "a"}, "ssl_keyfile is given without ssl_certfile"),
        ({**TLS, "ssl_password": "geheim"}, "ssl.password is given without ssl.certfile"),
        ({**TLS, "ssl_certfile": CA + KEY}, "ssl_certfile contains a private key"),
        ({**TLS, "ssl_password": 5, "ssl_certfile": "a"}, "must be a str, a Secret or a function"),
        ({**SASL, "sasl_mechanism": "scram_sha_256"}, "did you mean SCRAM-SHA-256?"),
        ({**SASL, "sasl_mechanism": "NTLM"}, "'NTLM' is not one of PLAIN, "),
        ({**SASL, "sasl_mechanism": Custom}, "an object with the attributes of"),
        ({**SASL, "sasl_mechanism": 5}, "an object with the attributes of"),
        ({**SASL, "sasl_token_provider": provider}, 'sasl_mechanism="PLAIN" does not use it'),
        ({**SASL, "sasl_mechanism": "OAUTHBEARER"}, "sasl_username is given but sasl_mechanism="),
        ({**SASL, "sasl_mechanism": "GSSAPI"}, "sasl_username is given but sasl_mechanism="),
        ({**SASL, "sasl_kerberos_keytab": "a"}, "sasl_kerberos_keytab is given but"),
        ({**TLS, "ssl_enabled_protocols": "TLSv1"}, "'TLSv1': only TLSv1.2 and TLSv1.3"),
    ],
)
@pytest.mark.parametrize("role", [ClientConfig, ProducerConfig, ConsumerConfig])
def test_refuses_options_that_contradict_each_other(
    role: type[Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidConfigurationError, match=words) as raised:
        role("a:1", **options)
    assert "geheim" not in str(raised.value)


def password() -> str:
    return "geheim"


@pytest.mark.parametrize(
    "options",
    [
        TLS,
        SASL,
        {**TLS, "ssl_context": CONTEXT},
        {**TLS, "ssl_certfile": "a", "ssl_keyfile": "b", "ssl_password": password},
        {**SASL, "ssl_cafile": "a", "ssl_check_hostname": False},
        {**SASL, "sasl_mechanism": Custom()},
        {**SASL, "sasl_mechanism": Custom(), "sasl_kerberos_keytab": "a"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"},
    ],
)
def test_accepts_options_that_fit_together(options: dict[str, Any]) -> None:
    config = ClientConfig("a:1", **options)
    assert "geheim" not in repr(config)
