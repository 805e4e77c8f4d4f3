#include "common/torch/generator_operators.h"

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/rand.h"
#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

class GeneratorOperatorsTest : public testing::Test {
 protected:
  GeneratorOperatorsTest() { DefineGeneratorOperators(); }

  static at::Tensor StateOf(const at::Generator& generator, int64_t bytes) {
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow("djinn_random::state", "")
        .typed<at::Tensor(const at::Tensor&, std::optional<at::Generator>,
                          int64_t)>()
        .call(at::empty({0}, at::kByte), generator, bytes);
  }

  static at::Tensor SetState(const at::Tensor& state,
                             const at::Generator& generator) {
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow("djinn_random::set_state", "")
        .typed<at::Tensor(const at::Tensor&, std::optional<at::Generator>)>()
        .call(state, generator);
  }

  at::Generator generator_ = at::detail::createCPUGenerator(7);
  const int64_t bytes_ = generator_.get_state().numel();
};

TEST_F(GeneratorOperatorsTest, RestoredGeneratorRepeatsItsDraws) {
  at::rand({5}, generator_);
  const at::Tensor state = StateOf(generator_, bytes_);
  const at::Tensor drawn = at::rand({5}, generator_);
  EXPECT_EQ(SetState(state, generator_).numel(), 0);
  EXPECT_TRUE(at::rand({5}, generator_).equal(drawn));
}

TEST_F(GeneratorOperatorsTest, MetadataAreKnownWithoutAGenerator) {
  const at::Tensor meta =
      at::empty({0}, at::device(at::kMeta).dtype(at::kByte));
  const at::Tensor state =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("djinn_random::state", "")
          .typed<at::Tensor(const at::Tensor&, std::optional<at::Generator>,
                            int64_t)>()
          .call(meta, std::nullopt, 16);
  EXPECT_EQ(state.numel(), 16);
  EXPECT_EQ(state.scalar_type(), at::kByte);
}

TEST_F(GeneratorOperatorsTest, StatesThatNoGeneratorCanBeInAreRefused) {
  const at::Tensor state = StateOf(generator_, bytes_);
  // The index of the next word lies beyond the last one.
  const uint64_t next = 1000;
  at::Tensor wrong = state.clone();
  std::memcpy(static_cast<char*>(wrong.mutable_data_ptr()) + 16, &next,
              sizeof(next));
  EXPECT_THROW(SetState(wrong, generator_), c10::Error);
  EXPECT_THROW(SetState(state.slice(0, 0, 100), generator_), c10::Error);
  EXPECT_THROW(SetState(state.view({-1, 2}), generator_), c10::Error);
  EXPECT_THROW(StateOf(generator_, bytes_ - 1), c10::Error);
  EXPECT_TRUE(generator_.get_state().equal(state));
}

TEST_F(GeneratorOperatorsTest, CheckNamesWhatIsWrong) {
  const at::Tensor state = generator_.get_state();
  const std::string bytes(static_cast<const char*>(state.const_data_ptr()),
                          state.nbytes());
  EXPECT_EQ(CheckCpuGeneratorState(bytes), absl::OkStatus());
  const absl::Status status = CheckCpuGeneratorState(bytes.substr(1));
  EXPECT_EQ(ErrorReason(status), "INVALID_GENERATOR");
}

}  // namespace
}  // namespace djinn
