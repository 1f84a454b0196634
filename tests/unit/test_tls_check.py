"""Which certificates do, and what is said of those that do not; configured ones by line."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from chassis import config, tls, tls_config
from chassis.tls import NAME, Identity, TlsFiles
from chassis.tls_check import UnusableError, check
from tests.tls_kit import SCRIPT, certify, misnamed, sign


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return certify(tmp_path_factory.mktemp("house"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return certify(tmp_path_factory.mktemp("elsewhere"))


def refusal(files: TlsFiles) -> tuple[str, str]:
    with pytest.raises(UnusableError) as caught:
        check(files.ca, files.certificate, files.key, NAME)
    return caught.value.key, str(caught.value)


def test_what_the_script_makes_does(good: TlsFiles) -> None:
    check(good.ca, good.certificate, good.key, NAME)


def test_keys_are_for_their_owner_alone(good: TlsFiles) -> None:
    for name in ("service.key", "ca.key"):
        assert (good.ca.parent / name).stat().st_mode & 0o077 == 0


def test_one_by_another_authority_is_refused(good: TlsFiles, foreign: TlsFiles) -> None:
    key, said = refusal(replace(good, ca=foreign.ca))
    assert key == "certificate"
    assert "signed by `ca`" in said


def test_one_of_another_name_is_refused(good: TlsFiles) -> None:
    key, said = refusal(misnamed(good.ca.parent))
    assert key == "certificate"
    assert "hostname mismatch" in said


def test_one_that_may_only_serve_is_refused(good: TlsFiles) -> None:
    only = sign(good.ca.parent, "server", f"subjectAltName=DNS:{NAME}\nextendedKeyUsage=serverAuth")
    key, said = refusal(only)
    assert key == "certificate"
    assert "purpose" in said


def test_one_whose_time_is_over_is_refused(tmp_path: Path) -> None:
    key, said = refusal(certify(tmp_path, days=-1))
    assert key == "certificate"
    assert "expired" in said


def test_the_key_of_another_is_refused(good: TlsFiles, foreign: TlsFiles) -> None:
    key, said = refusal(replace(good, key=foreign.key))
    assert key == "key"
    assert str(good.certificate) in said


def test_a_key_with_a_passphrase_is_refused_and_nobody_asked_for_it(
    good: TlsFiles, tmp_path: Path
) -> None:
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "ec", "-in", good.key, "-out", locked, "-aes256", "-passout", "pass:word"],
        check=True,
        capture_output=True,
    )
    key, said = refusal(replace(good, key=locked))
    assert key == "key"
    assert "without a passphrase" in said


@pytest.mark.parametrize("which", ["ca", "certificate", "key"])
def test_a_file_that_is_missing_is_named(good: TlsFiles, which: str, tmp_path: Path) -> None:
    key, said = refusal(replace(good, **{which: tmp_path / "none.pem"}))
    assert key == which
    assert "none.pem: No such file" in said


@pytest.mark.parametrize("which", ["ca", "certificate", "key"])
def test_a_file_that_is_something_else_is_named(good: TlsFiles, which: str, tmp_path: Path) -> None:
    (tmp_path / "poem.pem").write_text("Shall I compare thee")
    key, said = refusal(replace(good, **{which: tmp_path / "poem.pem"}))
    assert key == which
    assert "poem.pem" in said


@pytest.mark.parametrize("which", ["ca", "certificate", "key"])
def test_a_pipe_is_refused_and_not_waited_for(good: TlsFiles, which: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pem")
    key, said = refusal(replace(good, **{which: tmp_path / "pipe.pem"}))
    assert key == which
    assert "pipe.pem: not a file" in said


def configured(folder: Path, files: TlsFiles) -> config.Document:
    path = folder / "cohabit.yaml"
    path.write_text(
        "log_level: info\ntls:\n"
        f"  ca: {files.ca}\n  certificate: {files.certificate}\n  key: {files.key}\n"
    )
    return config.load(path)


def test_what_is_wrong_in_the_configuration_is_told_by_line(good: TlsFiles, tmp_path: Path) -> None:
    document = configured(tmp_path, replace(good, certificate=tmp_path / "none.pem"))
    with pytest.raises(config.ConfigError) as caught:
        tls_config.adopt(document)
    assert f"{document.path}:4: tls.certificate: expected a readable PEM" in str(caught.value)


def test_all_three_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "cohabit.yaml"
    path.write_text("tls:\n  ca: ca.pem\n  key: a.key\n")
    with pytest.raises(config.ConfigError, match=r"tls\.certificate: missing"):
        config.load(path)


def test_relative_paths_count_from_the_file_and_links_stay(tmp_path: Path, good: TlsFiles) -> None:
    (tmp_path / "now.pem").symlink_to(good.ca)
    document = configured(tmp_path, replace(good, ca=Path("now.pem")))
    files = tls_config.files_of(document)
    assert files is not None
    assert files.ca == tmp_path / "now.pem"


def test_without_the_section_there_are_none(tmp_path: Path) -> None:
    path = tmp_path / "cohabit.yaml"
    path.write_text("log_level: info\n")
    tls_config.adopt(config.load(path))
    assert tls.of_process() is None


def test_files_that_change_are_taken_once_they_fit_together(tmp_path: Path) -> None:
    files = certify(tmp_path / "house")
    identity = Identity(files)
    before = identity.pem()
    assert identity.pem() is before
    new = certify(tmp_path / "other")
    shutil.copy(new.certificate, files.certificate)
    assert identity.pem() is before  # the key is not its own
    shutil.copy(new.key, files.key)
    assert identity.pem() is before  # the authority has not signed it
    shutil.copy(new.ca, files.ca)
    after = identity.pem()
    assert after.certificate == new.certificate.read_bytes()
    files.key.unlink()
    assert identity.pem() is after


def test_what_openssl_refuses_is_heard(tmp_path: Path) -> None:
    done = subprocess.run(
        [SCRIPT, tmp_path, "soon"], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode
    assert "soon" in done.stderr
    assert not (tmp_path / "service.pem").exists()
