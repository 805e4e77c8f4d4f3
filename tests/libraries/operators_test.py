"""Operators of torchvision and torchaudio: equal to the CPU's, forward and backward."""

import copy
import unittest
from unittest import mock

import torch
import torchaudio
import torchvision
import torchvision.transforms.v2
from torchvision.models import detection
from torchvision.models.detection.transform import GeneralizedRCNNTransform

import djinn
from tests.python.remote_case import RemoteCase, run_program

_BOXES = torch.tensor([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 3.9], [5.0, 5.0, 9.0, 9.0]])


class OperatorsTest(RemoteCase):
    def compare(self, function, *tensors):
        """Calls the function with the tensors here and there, and differentiates its first result."""
        results = []
        for device in ("cpu", self.device):
            placed = [tensor.detach().to(device) for tensor in tensors]
            wanted = [tensor.requires_grad_() for tensor in placed if tensor.is_floating_point()]
            made = function(*placed)
            made = list(made) if isinstance(made, (tuple, list)) else [made]
            if made[0].requires_grad:
                made += torch.autograd.grad(made[0].square().sum(), wanted, allow_unused=True)
            results.append([each.detach() for each in made if each is not None])
        for local, remote in zip(*results, strict=True):
            self.assert_same(remote, local)

    def test_suppression_keeps_as_many_boxes_as_the_data_say(self):
        scores = torch.tensor([0.9, 0.8, 0.7])
        for threshold in (0.1, 0.5, 0.99):
            self.compare(
                lambda boxes, s, t=threshold: torchvision.ops.nms(boxes.detach(), s.detach(), t),
                _BOXES, scores)
        labels = torch.tensor([0, 1, 0])
        self.compare(
            lambda b, s, l: torchvision.ops.batched_nms(b.detach(), s.detach(), l, 0.5),
            _BOXES, scores, labels)

    def test_suppression_of_many_boxes_of_several_classes(self):
        torch.manual_seed(0)
        for count in (1000, 1001, 1500):
            boxes = torch.rand(count, 4) * 100
            boxes[:, 2:] += boxes[:, :2]
            # Equal scores come in an order that depends on the algorithm.
            scores, labels = (torch.rand(count) * 20).round() / 20, torch.randint(0, 5, (count,))
            for suppress in (torchvision.ops.batched_nms, torchvision.ops.boxes.batched_nms,
                             torch.jit.script(torchvision.ops.batched_nms)):
                if isinstance(suppress, torch.jit.ScriptFunction) and count > 1000:
                    continue
                with self.subTest(count=count, function=type(suppress).__name__):
                    expected = suppress(boxes, scores, labels, 0.5)
                    found = suppress(*(x.to(self.device) for x in (boxes, scores, labels)), 0.5)
                    self.assert_same(found, expected)

    def test_suppression_of_wrong_boxes_raises_at_the_call(self):
        with self.assertRaisesRegex(djinn.Error, "boxes should be a 2d tensor, got 1D"):
            torchvision.ops.nms(_BOXES[0].to(self.device), torch.ones(4, device=self.device), 0.5)
        self.assertEqual(torch.ones(2, device=self.device).tolist(), [1, 1])

    def test_regions(self):
        torch.manual_seed(0)
        images = torch.rand(2, 8, 16, 16)
        regions = torch.cat([torch.tensor([[0.0], [1.0], [1.0]]), _BOXES], 1)
        ops = torchvision.ops
        for pool in (ops.roi_align, ops.roi_pool, ops.ps_roi_align, ops.ps_roi_pool):
            with self.subTest(pool.__name__):
                self.compare(lambda x, r, pool=pool: pool(x, r.detach(), (2, 2), 0.5), images, regions)

    def test_deformable_convolution(self):
        torch.manual_seed(0)
        self.compare(
            lambda *tensors: torchvision.ops.deform_conv2d(*tensors, padding=1),
            torch.rand(2, 4, 8, 8), torch.randn(2, 18, 8, 8), torch.randn(6, 4, 3, 3),
            torch.randn(6))

    def test_each_operator_that_casts_on_a_gpu_casts_here(self):
        torch.ones(1, device=self.device)
        names = [
            name for name in torch._C._dispatch_get_all_op_names()
            if name.startswith("torchvision::")
            and torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA")
        ]
        self.assertGreater(len(names), 5)
        for name in names:
            with self.subTest(name):
                self.assertTrue(
                    torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastPrivateUse1"))

    def test_operands_of_mixed_types_under_autocast(self):
        torch.manual_seed(0)
        images = torch.rand(2, 8, 16, 16).bfloat16()
        regions = torch.cat([torch.tensor([[0.0], [1.0], [1.0]]), _BOXES], 1)
        ops = torchvision.ops

        def compare(function, *tensors):
            """Uses float32 on the CPU: torchvision has two kernels for autocast."""

            def call(*placed):
                if placed[0].device.type == "cpu":
                    result = function(*(tensor.float() for tensor in placed))
                    return result.to(placed[0].dtype) if result.is_floating_point() else result
                with torch.autocast(placed[0].device.type, torch.bfloat16):
                    return function(*placed)

            self.compare(call, *tensors)

        for pool in (ops.roi_align, ops.roi_pool, ops.ps_roi_align, ops.ps_roi_pool):
            with self.subTest(pool.__name__):
                compare(lambda x, r, pool=pool: pool(x, r.detach(), (2, 2), 0.5), images, regions)
        compare(lambda boxes, s: ops.nms(boxes.detach(), s.detach(), 0.5),
                _BOXES, torch.tensor([0.9, 0.8, 0.7]).bfloat16())
        compare(lambda *tensors: ops.deform_conv2d(*tensors, padding=1),
                torch.rand(2, 4, 8, 8).bfloat16(), torch.randn(2, 18, 8, 8),
                torch.randn(6, 4, 3, 3), torch.randn(6).half())

    def test_a_detector_is_trained_under_autocast(self):
        model = detection.fasterrcnn_mobilenet_v3_large_320_fpn(
            weights=None, weights_backbone=None, num_classes=3, min_size=64, max_size=64,
        ).to(self.device)
        target = {"boxes": torch.tensor([[4.0, 4.0, 40.0, 40.0]], device=self.device),
                  "labels": torch.tensor([1], device=self.device)}
        with torch.autocast(self.device.type):
            losses = model([torch.rand(3, 64, 64, device=self.device)], [target])
        sum(losses.values()).backward()
        self.assertTrue(all(torch.isfinite(loss) for loss in losses.values()))

    def test_values_out_of_range_are_refused(self):
        images = torch.rand(1, 4, 8, 8, device=self.device)
        for first in (1.0, -1.0, float("nan")):
            regions = torch.tensor([[first, 0.0, 0.0, 4.0, 4.0]], device=self.device)
            for pool in (torchvision.ops.roi_align, torchvision.ops.roi_pool,
                         torchvision.ops.ps_roi_align, torchvision.ops.ps_roi_pool):
                with self.subTest(pool.__name__, first=first), self.assertRaises(djinn.Error):
                    pool(images, regions, (2, 2)).cpu()
        nowhere = torch.tensor([[0.0, float("nan"), 0.0, 4.0, 4.0]], device=self.device)
        with self.assertRaises(djinn.Error):
            torchvision.ops.roi_align(images, nowhere, (2, 2)).cpu()
        with self.assertRaises(djinn.Error):
            torch.ops.torchvision._roi_pool_backward(
                torch.ones(1, 4, 2, 2, device=self.device),
                torch.tensor([[0.0, 0.0, 0.0, 4.0, 4.0]], device=self.device),
                torch.full((1, 4, 2, 2), 64, dtype=torch.int32, device=self.device),
                1.0, 2, 2, 1, 4, 8, 8).cpu()

    def test_transducer_loss(self):
        torch.manual_seed(0)
        lengths = torch.tensor([4, 3], dtype=torch.int32)
        for fused in (True, False):
            self.compare(
                lambda logits, targets, a, b, fused=fused: torchaudio.functional.rnnt_loss(
                    logits, targets, a, b, blank=0, fused_log_softmax=fused),
                torch.randn(2, 4, 3, 5), torch.tensor([[1, 2], [3, 1]], dtype=torch.int32),
                lengths, torch.tensor([2, 1], dtype=torch.int32))

    def test_targets_of_the_transducer_that_are_no_class_are_refused(self):
        lengths = torch.tensor([4], dtype=torch.int32, device=self.device)
        for wrong in (5, -1):
            targets = torch.tensor([[1, wrong]], dtype=torch.int32, device=self.device)
            with self.assertRaises(djinn.Error):
                torchaudio.functional.rnnt_loss(
                    torch.randn(1, 4, 3, 5, device=self.device), targets, lengths, lengths // 2,
                    blank=0).cpu()

    def test_alignment(self):
        torch.manual_seed(0)
        self.compare(
            lambda x, targets: torch.ops.torchaudio.forced_align(
                x.detach(), targets, torch.tensor([6], device=x.device),
                torch.tensor([2], device=x.device), 0),
            torch.randn(1, 6, 5).log_softmax(-1), torch.tensor([[1, 2]]))

    def test_images_of_bytes_are_resized_to_the_nearest_value(self):
        # torchvision computes in bytes on the CPU alone, as docs/user/libraries.md says.
        torch.manual_seed(0)
        image = torch.randint(0, 256, (3, 37, 41), dtype=torch.uint8)
        expected = torchvision.transforms.v2.functional.resize(image, [20, 23])
        found = torchvision.transforms.v2.functional.resize(image.to(self.device), [20, 23])
        torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1)

    def test_filters(self):
        # torchaudio registers a loop of PyTorch's operators for all devices beside its kernel for
        # the CPU. A remote device takes the former, as docs/user/libraries.md says.
        torch.manual_seed(0)
        x = torch.randn(2, 64)
        expected = torchaudio.functional.lowpass_biquad(x, 16000, 400.0)
        found = torchaudio.functional.lowpass_biquad(x.to(self.device), 16000, 400.0)
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


class ImportTest(unittest.TestCase):
    def test_libraries_that_are_imported_after_the_workers_started(self):
        self.assertEqual(run_program("""
            import djinn
            djinn.local(worker_threads=1)
            import torch, torchaudio, torchvision
            device = djinn.device()
            boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 3.9]])
            print(torchvision.ops.nms(boxes.to(device), torch.ones(2).to(device), 0.5).tolist())
            logits = torch.randn(1, 3, 3, 5)
            lengths, targets = (torch.tensor(x, dtype=torch.int32) for x in ([3], [[1, 2]]))
            loss = [
                torchaudio.functional.rnnt_loss(
                    logits.to(place), targets.to(place), lengths.to(place), lengths.to(place) - 1,
                    blank=0).cpu()
                for place in ("cpu", device)]
            print(torch.equal(*loss))
            """).stdout, "[0]\nTrue\n")


class DetectionTest(RemoteCase):
    """Whole models with random weights on small images."""

    def setUp(self):
        # In training, torchvision draws the image's size, of which there is one, from the CPU's
        # generator, and samples boxes from the device's. On the CPU both are one generator.
        self.enterContext(mock.patch.object(
            GeneralizedRCNNTransform, "torch_choice", lambda _, sizes: sizes[0]))

    def assert_equal_model(self, build, size=96):
        torch.manual_seed(0)
        local = build(weights=None, weights_backbone=None, num_classes=4)
        remote = copy.deepcopy(local).to(self.device)
        images = [torch.rand(3, size, size), torch.rand(3, size, size // 2)]
        masks = torch.zeros(1, size, size // 2, dtype=torch.uint8)
        masks[:, 4:20, 4:20] = 1
        targets = [
            {"boxes": torch.tensor([[4.0, 4.0, 20.0, 20.0]]), "labels": torch.tensor([1]),
             "masks": masks[..., :size // 2] if wide == size // 2 else
             torch.nn.functional.pad(masks, (0, size - size // 2))}
            for wide in (size, size // 2)]

        def run(model, device):
            move = lambda mapping: {name: value.to(device) for name, value in mapping.items()}
            placed = [image.to(device) for image in images]
            torch.manual_seed(1)
            losses = model.train()(placed, [move(target) for target in targets])
            sum(losses.values()).backward()
            with torch.no_grad():
                found = model.eval()(placed)
            return losses, {n: p.grad for n, p in model.named_parameters()}, found

        here, there = run(local, "cpu"), run(remote, self.device)
        for kind in (0, 1):
            self.assertEqual(here[kind].keys(), there[kind].keys())
            for name, value in here[kind].items():
                with self.subTest(name):
                    if value is None:
                        self.assertIsNone(there[kind][name])
                    else:
                        torch.testing.assert_close(
                            there[kind][name].detach().cpu(), value.detach(), rtol=0, atol=0)
        for one, other in zip(here[2], there[2], strict=True):
            for name, value in one.items():
                torch.testing.assert_close(other[name].cpu(), value, rtol=0, atol=0)

    def test_faster_rcnn(self):
        self.assert_equal_model(detection.fasterrcnn_mobilenet_v3_large_320_fpn)

    def test_mask_rcnn(self):
        self.assert_equal_model(
            lambda **options: detection.maskrcnn_resnet50_fpn(
                min_size=96, max_size=96, **options))

    def test_retinanet(self):
        self.assert_equal_model(
            lambda **options: detection.retinanet_resnet50_fpn(
                min_size=96, max_size=96, **options))

    def test_ssd(self):
        self.assert_equal_model(detection.ssdlite320_mobilenet_v3_large)
