"""Settings of traces, and the caller's own trace."""

import threading

import torch

import djinn
from tests.python.remote_case import RemoteCase

_PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"


class TracingTest(RemoteCase):

    def tearDown(self):
        djinn.configure_tracing()

    def compute(self):
        x = torch.arange(6.).reshape(2, 3)
        self.assertTrue(torch.equal((x.to("remote_accelerator") * 2).cpu(), x * 2))

    def test_traces_without_a_collector_change_no_result(self):
        # Nothing listens there, which changes no result.
        djinn.configure_tracing("127.0.0.1:1", sample_ratio=1, nodes=True)
        for flag in "01":
            with djinn.trace(_PARENT + flag):
                self.compute()
                with djinn.trace(_PARENT + "0"):
                    self.compute()
        self.compute()

    def test_bad_settings_are_named(self):
        for reason, arguments, named in (
                ("BAD_TRACING", (), {"sample_ratio": 1.5}),
                ("BAD_TRACING", (), {"ca_file": "ca.crt"}),
                ("BAD_TRACING", (), {"certificate_file": "client.crt"}),
                ("BAD_TRACING", (), {"private_key_file": "client.key"}),
                ("BAD_TRACING", (), {"server_name": "otel"}),
                ("INSECURE_ADDRESS", ("otel.example.com:4317",), {}),
                ("MALFORMED_ADDRESS", ("otel",), {})):
            with self.assertRaises(djinn.Error) as caught:
                djinn.configure_tracing(*arguments, **named)
            self.assertEqual(caught.exception.reason, reason)

    def test_misuse_of_a_trace_raises(self):
        trace = djinn.trace(_PARENT + "1")
        with self.assertRaises(RuntimeError):
            trace.__exit__(None, None, None)
        raised = []

        def leave():
            try:
                trace.__exit__(None, None, None)
            except RuntimeError as error:
                raised.append(error)

        with trace:
            with self.assertRaises(RuntimeError):
                trace.__enter__()
            thread = threading.Thread(target=leave)
            thread.start()
            thread.join()
            self.assertEqual(len(raised), 1)
            self.compute()
        # It may be used again.
        with trace:
            self.compute()

    def test_a_malformed_traceparent_is_named(self):
        with self.assertRaises(djinn.Error) as caught:
            with djinn.trace("00-abc"):
                self.fail("not reached")
        self.assertEqual(caught.exception.reason, "BAD_TRACEPARENT")
