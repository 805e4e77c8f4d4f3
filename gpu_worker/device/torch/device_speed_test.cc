#include "gpu_worker/device/torch/device_speed.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "gpu_worker/device/operator_library.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

struct Bytes final : Buffer {
  explicit Bytes(uint64_t size) : size(size) {}
  uint64_t size_bytes() const override { return size; }
  const uint64_t size;
};

// A device that computes nothing but takes time: `cost` for each call, given
// its operator and the size of its result, and `way_back` for each read.
class TimedDevice final : public Device, public OperatorLibrary {
 public:
  using Cost = std::function<absl::Duration(const std::string& op,
                                            const srg::Dimensions& sizes)>;

  TimedDevice(FakeClock* clock, Cost cost) : clock_(clock), cost_(cost) {}

  std::string name() const override { return "timed"; }
  uint64_t memory_bytes() const override { return memory; }
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(uint64_t bytes) override {
    most_bytes = std::max(most_bytes, bytes);
    if (fails) return absl::ResourceExhaustedError("full");
    return std::make_shared<Bytes>(bytes);
  }
  absl::StatusOr<std::shared_ptr<Buffer>> AllocateUnset(
      uint64_t bytes) override {
    return Allocate(bytes);
  }
  absl::StatusOr<std::shared_ptr<Buffer>> Clone(const Buffer&,
                                                uint64_t bytes) override {
    return Allocate(bytes);
  }
  absl::Status Write(Buffer*, uint64_t, absl::string_view) override {
    return absl::OkStatus();
  }
  absl::StatusOr<SharedBytes> HostBytes(
      std::shared_ptr<Buffer> buffer) override {
    return HostRange(buffer, 0, buffer->size_bytes());
  }
  absl::StatusOr<SharedBytes> HostRange(std::shared_ptr<Buffer>, uint64_t,
                                        uint64_t) override {
    clock_->Advance(way_back);
    return SharedBytes();
  }
  absl::StatusOr<SharedBytes> ReadView(std::shared_ptr<Buffer> buffer,
                                       const srg::TensorView&) override {
    return HostBytes(std::move(buffer));
  }
  OperatorLibrary* operators() override { return this; }

  absl::StatusOr<std::unique_ptr<CompiledProgram>> Compile(
      const srg::Graph& graph) override {
    return std::make_unique<Program>(this, graph);
  }
  absl::StatusOr<uint64_t> GeneratorBytes() override { return 16; }
  absl::StatusOr<std::shared_ptr<Buffer>> SeedGenerator(uint64_t) override {
    return Allocate(16);
  }
  absl::Status CheckGenerator(absl::string_view) override {
    return absl::OkStatus();
  }

  uint64_t memory = uint64_t{64} << 30;
  absl::Duration way_back = absl::Milliseconds(3);
  bool fails = false;
  uint64_t most_bytes = 0;

 private:
  class Program final : public CompiledProgram {
   public:
    Program(TimedDevice* device, srg::Graph graph)
        : device_(device), graph_(std::move(graph)) {}
    absl::Status Execute(uint32_t node, const NodeInput&,
                         std::vector<NodeResult>* results) const override {
      const auto& view =
          std::get<srg::TensorView>(graph_.nodes[node].results[0]);
      device_->clock_->Advance(
          device_->cost_(graph_.operators[0].name, view.sizes));
      results->push_back({std::make_shared<Bytes>(4), view, std::nullopt});
      return absl::OkStatus();
    }

   private:
    TimedDevice* const device_;
    const srg::Graph graph_;
  };

  FakeClock* const clock_;
  const Cost cost_;
};

// Returns the time of a call: the time of its work, and at least 5 us.
absl::Duration Cost(const std::string& op, const srg::Dimensions& sizes,
                    double flops, double bytes) {
  double seconds = 0;
  if (op == "aten::mm") {
    const auto side = static_cast<double>(sizes[0]);
    seconds = 2 * side * side * side / flops;
  } else {
    seconds = 8.0 * static_cast<double>(sizes[0]) / bytes;
  }
  return std::max(absl::Seconds(seconds), absl::Microseconds(5));
}

TEST(DeviceSpeedTest, FindsRatesWithoutTheWayThereAndBack) {
  FakeClock clock;
  TimedDevice device(&clock, [](const auto& op, const auto& sizes) {
    return Cost(op, sizes, 6e13, 3e12);
  });
  const auto speed = MeasureDeviceSpeed(&device, &clock);
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_NEAR(speed->flops_per_second(), 6e13, 6e11);
  EXPECT_NEAR(speed->bytes_per_second(), 3e12, 3e10);
  EXPECT_NEAR(speed->seconds_per_call(), 5e-6, 1e-7);
}

TEST(DeviceSpeedTest, ASlowDeviceIsNotGivenMuch) {
  FakeClock clock;
  TimedDevice device(&clock, [](const auto& op, const auto& sizes) {
    return Cost(op, sizes, 1e11, 1e10);
  });
  ASSERT_TRUE(MeasureDeviceSpeed(&device, &clock).ok());
  EXPECT_LE(device.most_bytes, uint64_t{8} << 20);
}

TEST(DeviceSpeedTest, TakesAnEighthOfTheMemoryAtMost) {
  FakeClock clock;
  TimedDevice device(&clock, [](const auto& op, const auto& sizes) {
    // so fast that larger tensors would be measured
    return Cost(op, sizes, 6e15, 3e15);
  });
  device.memory = uint64_t{1} << 30;
  ASSERT_TRUE(MeasureDeviceSpeed(&device, &clock).ok());
  EXPECT_LE(3 * device.most_bytes, device.memory / 8);
}

TEST(DeviceSpeedTest, SaysThatItMeasuredNothing) {
  FakeClock clock;
  TimedDevice device(
      &clock, [](const auto&, const auto&) { return absl::ZeroDuration(); });
  const auto speed = MeasureDeviceSpeed(&device, &clock);
  EXPECT_EQ(ErrorReason(speed.status()), "SPEED_NOT_MEASURED");
}

TEST(DeviceSpeedTest, HandsTheDevicesErrorOn) {
  FakeClock clock;
  TimedDevice device(
      &clock, [](const auto&, const auto&) { return absl::Milliseconds(1); });
  device.fails = true;
  EXPECT_EQ(MeasureDeviceSpeed(&device, &clock).status().message(), "full");
}

}  // namespace
}  // namespace djinn::worker
