"""Optimizers with their defaults give the CPU's bits."""

import torch

from tests.python.remote_case import RemoteCase, WORKER_DEVICE

_OPTIMIZERS = {
    name: getattr(torch.optim, name)
    for name in ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta",
                 "RMSprop", "Rprop", "ASGD", "Adafactor")
}


class OptimizersTest(RemoteCase):
    def trained(self, place, make, dtype=torch.float32):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(7, 11), torch.nn.Tanh(), torch.nn.Linear(11, 3)).to(place, dtype)
        inputs, targets = torch.randn(5, 7).to(place, dtype), torch.randn(5, 3).to(place, dtype)
        optimizer = make(model.parameters())
        for _ in range(6):
            optimizer.zero_grad()
            (model(inputs) - targets).square().mean().backward()
            optimizer.step()
        return [parameter.detach().cpu() for parameter in model.parameters()]

    def test_each_kind(self):
        options = {
            "defaults": {},
            "a rate in a tensor": {"lr": torch.tensor(0.01)},
            "a rate in a tensor that has gradients": {
                "lr": torch.tensor(0.01), "differentiable": True},
            "weight decay": {"weight_decay": 0.1},
        }
        for name, kind in _OPTIMIZERS.items():
            for option, arguments in options.items():
                with self.subTest(optimizer=name, option=option):
                    def make(parameters, kind=kind, arguments=arguments):
                        return kind(parameters, **arguments)

                    try:
                        expected = self.trained("cpu", make)
                    except (RuntimeError, TypeError, ValueError) as error:
                        with self.assertRaises(type(error)):
                            self.trained(self.device, make)
                        continue
                    tolerance = 0 if WORKER_DEVICE == "cpu" else 1e-4
                    torch.testing.assert_close(
                        self.trained(self.device, make), expected, rtol=tolerance, atol=tolerance)

    def test_each_dtype_of_parameters(self):
        options = {
            "defaults": {},
            "a rate in a tensor": {"lr": torch.tensor(0.01)},
            "weight decay": {"weight_decay": 0.1},
            "momentum": {"momentum": 0.9},
            "largest squares": {"amsgrad": True},
        }
        for name, kind in _OPTIMIZERS.items():
            for option, arguments in options.items():
                for dtype in (torch.float16, torch.bfloat16, torch.float64):
                    def make(parameters, kind=kind, arguments=arguments):
                        return kind(parameters, **arguments)

                    try:
                        expected = self.trained("cpu", make, dtype)
                    except TypeError:
                        continue  # The optimizer has no such option.
                    with self.subTest(optimizer=name, option=option, dtype=dtype):
                        tolerance = 0 if WORKER_DEVICE == "cpu" else 1e-2
                        torch.testing.assert_close(
                            self.trained(self.device, make, dtype), expected,
                            rtol=tolerance, atol=tolerance, equal_nan=True)

    def test_a_list_form_that_is_asked_for_is_taken(self):
        step = torch.optim.ASGD(
            [torch.nn.Parameter(torch.ones(2, device=self.device))], foreach=True).step
        self.assertIsNone(step())

    def test_averages_of_weights(self):
        averaging = {
            "the default": {},
            "exponential": {"avg_fn": torch.optim.swa_utils.get_ema_avg_fn(0.9)},
        }
        for name, options in averaging.items():
            for buffers in (False, True):
                with self.subTest(name, use_buffers=buffers):
                    found = []
                    for place in ("cpu", self.device):
                        torch.manual_seed(0)
                        model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.BatchNorm1d(5)).to(place)
                        averaged = torch.optim.swa_utils.AveragedModel(
                            model, use_buffers=buffers, **options)
                        for _ in range(5):
                            averaged.update_parameters(model)
                            with torch.no_grad():
                                for tensor in (*model.parameters(), model[1].running_mean):
                                    tensor.add_(torch.randn(tensor.shape).to(place))
                        found.append([tensor.cpu() for tensor in averaged.state_dict().values()])
                    tolerance = 0 if WORKER_DEVICE == "cpu" else 1e-6
                    torch.testing.assert_close(found[1], found[0], rtol=tolerance, atol=tolerance)
