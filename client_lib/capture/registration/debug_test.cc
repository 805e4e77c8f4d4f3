// Tests call sites, the logs of the debug levels, and the limits of shape
// inference.
#include "djinn/debug.h"

#include <torch/torch.h>

#include <string>
#include <thread>
#include <vector>

#include "client_lib/capture/device/backend.h"
#include "client_lib/capture/device/process_session.h"
#include "client_lib/capture/kernel/capture_kernel.h"
#include "client_lib/capture/registration/registration.h"
#include "client_lib/capture/testing/recording_session.h"
#include "client_lib/session/model/call_sites.h"
#include "client_lib/session/model/debug_flags.h"
#include "djinn/hints.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::capture {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string location;

class DebugTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    RegisterBackend();
    RegisterOperators();
  }
  void SetUp() override {
    ASSERT_TRUE(SetSession(session_).ok());
    recorder_ = session_->Recorder(0);
  }
  void TearDown() override {
    debug::Set(~0u, 0);
    SetCallSiteSource(nullptr);
    TakeSession();
  }

  at::Tensor Remote(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
    return at::empty(sizes, at::TensorOptions(device_).dtype(type));
  }
  // Returns the sites of the calls since the last invocation.
  std::vector<std::string> TakeSites() {
    std::vector<std::string> sites;
    for (const RecordedCall& call : recorder_->TakeCalls()) {
      if (call.site == 0) {
        sites.push_back("none");
        continue;
      }
      const CallSite site = CallSiteTable::Global().Get(call.site);
      sites.push_back(call.name + " at " + site.location + " in " +
                      site.module);
    }
    return sites;
  }
  template <typename Work>
  std::string LogOf(debug::Flag level, Work work) {
    debug::Set(debug::kLevels, level);
    testing::internal::CaptureStderr();
    work();
    debug::Set(debug::kLevels, 0);
    return testing::internal::GetCapturedStderr();
  }

  const at::Device device_{"remote_accelerator:0"};
  const std::shared_ptr<RecordingSession> session_ =
      std::make_shared<RecordingSession>();
  std::shared_ptr<RecordingDevice> recorder_;
};

TEST_F(DebugTest, CallSitesAreRecordedOnlyIfEnabled) {
  const at::NoGradGuard no_grad;
  SetCallSiteSource([] { return location; });
  location = "model.py:12";
  const at::Tensor x = Remote({3});
  at::relu(x);
  EXPECT_EQ(TakeSites(), std::vector<std::string>{"none"});
  debug::Set(debug::kCallSites, debug::kCallSites);
  {
    const ModuleScope net("Net");
    at::relu(x);
    const ModuleScope layer("fc1");
    location = "model.py:13";
    at::relu(x);
    std::thread([&] { at::relu(x); }).join();
  }
  location.clear();
  at::relu(x);
  EXPECT_EQ(TakeSites(), (std::vector<std::string>{
                             "aten::relu at model.py:12 in Net",
                             "aten::relu at model.py:13 in Net.fc1",
                             "aten::relu at model.py:13 in ", "none"}));
}

TEST_F(DebugTest, BackwardCallHasTheForwardCallSite) {
  SetCallSiteSource([] { return location; });
  debug::Set(debug::kCallSites, debug::kCallSites);
  at::Tensor x = Remote({3}).requires_grad_();
  location = "first";
  const at::Tensor first = [&] {
    const ModuleScope net("Net");
    return at::exp(x);
  }();
  location = "second";
  const at::Tensor sum = at::sigmoid(first).sum();
  location = "third";
  TakeSites();
  sum.backward();
  const std::vector<std::string> sites = TakeSites();
  std::string all;
  for (const std::string& site : sites) all += site + "\n";
  EXPECT_THAT(all, HasSubstr("aten::sigmoid_backward at the backward of second"
                             " in \n"));
  EXPECT_THAT(all, HasSubstr("aten::mul.Tensor at the backward of first in "
                             "Net\n"));
  EXPECT_THAT(all,
              Not(HasSubstr("aten::mul.Tensor at the backward of second")));
}

TEST_F(DebugTest, PhaseAppliesToTheLaneAndItsBackwardPass) {
  at::Tensor x = Remote({3}).requires_grad_();
  TakeSites();
  const auto phases = [&] {
    std::vector<int> found;
    for (const RecordedCall& call : recorder_->TakeCalls()) {
      found.push_back(
          call.site == 0 ? 0 : CallSiteTable::Global().Get(call.site).phase);
    }
    return found;
  };
  {
    const PhaseScope training(Phase::kTraining);
    at::exp(x).sum().backward();
    for (const int phase : phases()) EXPECT_EQ(phase, v1::PHASE_TRAINING);
    std::thread([&] { at::exp(x); }).join();
    EXPECT_EQ(phases(), std::vector<int>{v1::PHASE_UNSPECIFIED});
    EXPECT_EQ(SignalPhase(Phase::kLlmDecode), Phase::kTraining);
    at::exp(x);
    EXPECT_EQ(phases(), std::vector<int>{v1::PHASE_LLM_DECODE});
  }
  at::exp(x);
  EXPECT_EQ(phases(), std::vector<int>{v1::PHASE_UNSPECIFIED});
}

TEST_F(DebugTest, InterceptionLogsEveryCallWithItsArguments) {
  const at::NoGradGuard no_grad;
  const at::Tensor a = Remote({2, 3}), b = Remote({2, 3});
  const std::string log = LogOf(debug::kInterception, [&] {
    at::add(a, b, 2.5);
    at::cat({a, b}, 1);
    a.t().mul(at::scalar_tensor(3));
    at::sum(a, at::IntArrayRef({0, 1}), true);
  });
  for (const char* line :
       {"op=aten::add.Tensor device=remote_accelerator:0 "
        "arguments=\"Float[2,3], Float[2,3], 2.5\"",
        "op=aten::cat device=remote_accelerator:0 "
        "arguments=\"[Float[2,3], Float[2,3]], 1\"",
        "op=aten::t ", "Float[3,2] by strides 1,3, Float[] on cpu",
        "arguments=\"Float[2,3], [0, 1], True, None\"", "msg=call lane="}) {
    EXPECT_THAT(log, HasSubstr(line));
  }
  EXPECT_THAT(log, Not(HasSubstr("msg=shape")));
}

TEST_F(DebugTest, ShapeInferenceLogsWhereShapesComeFrom) {
  const at::NoGradGuard no_grad;
  const at::Tensor a = Remote({5, 3});
  const std::string log = LogOf(debug::kShapeInference, [&] {
    at::tan(a);
    at::tan(a);
    at::nonzero(a);
  });
  for (const char* line :
       {"op=aten::tan by=re-entry results=Float[5,3]",
        "op=aten::tan by=\"memo of an equal call\" results=Float[5,3]",
        "op=aten::nonzero by=\"nothing: the shape depends on data\" "
        "results=unknown"}) {
    EXPECT_THAT(log, HasSubstr(line));
  }
}

}  // namespace
}  // namespace djinn::capture
