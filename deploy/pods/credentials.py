"""Tokens and certificates of tests, and Secrets with them."""

import base64
import subprocess

TOKENS = {key: (key + "-0123456789abcdef").encode() for key in ("join", "admin",
                                                                "tenant-default")}


def secret(name, data):
    return {"kind": "Secret", "metadata": {"name": name},
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()}}


class Authority:
    """Certificates, as docs/operator/secure.md makes them."""

    def __init__(self, folder):
        self.folder = folder
        self._openssl("req", "-x509", "-newkey", "ed25519", "-noenc", "-keyout", "ca.key",
                      "-out", "ca.crt", "-days", "2", "-subj", "/CN=CA")

    def _openssl(self, *arguments, **options):
        return subprocess.run(["openssl", *arguments], cwd=self.folder, check=True,
                              capture_output=True, **options).stdout

    def issue(self, name, names):
        request = self._openssl("req", "-newkey", "ed25519", "-noenc", "-keyout", f"{name}.key",
                                "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}")
        self._openssl("x509", "-req", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                      "-days", "2", "-copy_extensions", "copy", "-out", f"{name}.crt",
                      input=request)
        return {key: (self.folder / file).read_bytes() for key, file in (
            ("tls.crt", f"{name}.crt"), ("tls.key", f"{name}.key"), ("ca.crt", "ca.crt"))}
