#include "gpu_worker/session/state/models.h"

#include <limits>
#include <string>

#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class ModelsTest : public testing::Test {
 protected:
  void Limit(uint32_t max_models, uint64_t model_bytes) {
    v1::TenantLimits limits;
    limits.set_max_models(max_models);
    limits.set_model_bytes(model_bytes);
    account_.SetLimits(limits);
  }
  static v1::SessionUse UseOf(const Models& models) {
    v1::SessionUse use;
    models.Report(&use);
    return use;
  }
  static v1::ModelState State(uint64_t id, uint64_t bytes,
                              const std::string& name = "net") {
    v1::ModelState state;
    state.set_model_id(id);
    state.set_name(name);
    state.set_size_bytes(bytes);
    return state;
  }

  TenantAccount account_;
  Models models_{&account_};
};

TEST_F(ModelsTest, NothingIsLimitedUnlessSaid) {
  account_.SetLimits(v1::TenantLimits());
  for (uint64_t id = 1; id <= 100; ++id) {
    EXPECT_TRUE(models_.Register(id, "net", uint64_t{1} << 40).ok());
  }
  EXPECT_EQ(UseOf(models_).model_count(), 100u);
  EXPECT_EQ(UseOf(models_).model_bytes(), uint64_t{100} << 40);
}

TEST_F(ModelsTest, ALimitOfNoneIsOne) {
  Limit(0, 1000);
  EXPECT_EQ(ErrorReason(models_.Register(1, "net", 10)), "MAX_MODELS");
}

TEST_F(ModelsTest, OneThatIsTooLargeIsRefused) {
  Limit(5, 1000);
  EXPECT_TRUE(models_.Register(1, "small", 1000).ok());
  const absl::Status refused = models_.Register(2, "large", 1001);
  EXPECT_EQ(ErrorReason(refused), "MODEL_BYTES");
  EXPECT_EQ(refused.message(),
            "what the model large keeps using: limit 1000 bytes, used 0, asked "
            "1001");
  EXPECT_EQ(UseOf(models_).model_count(), 1u);
  EXPECT_EQ(UseOf(models_).refused_models(), 1u);
}

TEST_F(ModelsTest, OneTooManyOfTheTenantsSessionsIsRefused) {
  Limit(2, 1000);
  Models other(&account_);
  EXPECT_TRUE(models_.Register(1, "a", 10).ok());
  EXPECT_TRUE(other.Register(1, "b", 10).ok());
  const absl::Status refused = models_.Register(2, "c", 10);
  EXPECT_EQ(ErrorReason(refused), "MAX_MODELS");
  EXPECT_EQ(refused.message(),
            "models of the tenant's sessions on this worker: limit 2, used 2, "
            "asked 1");
  EXPECT_EQ(UseOf(models_).refused_models(), 1u);
  EXPECT_EQ(UseOf(other).refused_models(), 0u);
  other.Remove(1);
  EXPECT_TRUE(models_.Register(2, "c", 10).ok());
}

TEST_F(ModelsTest, ModelRegisteredAgainTakesNoFurtherPlace) {
  Limit(1, 1000);
  EXPECT_TRUE(models_.Register(7, "a", 10).ok());
  EXPECT_TRUE(models_.Register(7, "b", 30).ok());
  const v1::SessionUse use = UseOf(models_);
  EXPECT_EQ(use.model_count(), 1u);
  EXPECT_EQ(use.model_bytes(), 30u);
  EXPECT_EQ(use.models(0).name(), "b");
}

TEST_F(ModelsTest, WhenThatIsRefusedItStaysWhatItWas) {
  Limit(1, 1000);
  EXPECT_TRUE(models_.Register(7, "a", 10).ok());
  const absl::Status refused = models_.Register(7, "b", 2000);
  EXPECT_EQ(ErrorReason(refused), "MODEL_BYTES");
  EXPECT_EQ(ErrorMetadataValue(refused, "used"), "10");
  EXPECT_EQ(UseOf(models_).models(0).name(), "a");
  EXPECT_EQ(UseOf(models_).model_bytes(), 10u);
}

TEST_F(ModelsTest, LowerLimitsHoldForWhatComes) {
  Limit(2, 1000);
  EXPECT_TRUE(models_.Register(1, "a", 900).ok());
  EXPECT_TRUE(models_.Register(2, "b", 10).ok());
  Limit(1, 100);
  EXPECT_EQ(UseOf(models_).model_count(), 2u);
  EXPECT_EQ(ErrorReason(models_.Register(1, "a", 900)), "MODEL_BYTES");
  EXPECT_TRUE(models_.Register(2, "b", 20).ok());
  EXPECT_EQ(ErrorReason(models_.Register(3, "c", 1)), "MAX_MODELS");
}

TEST_F(ModelsTest, ASessionThatEndsLeavesItsPlaces) {
  Limit(2, 1000);
  {
    Models other(&account_);
    EXPECT_TRUE(other.Register(1, "a", 10).ok());
    EXPECT_TRUE(other.Register(2, "b", 10).ok());
    EXPECT_EQ(ErrorReason(models_.Register(1, "c", 10)), "MAX_MODELS");
  }
  EXPECT_TRUE(models_.Register(1, "c", 10).ok());
}

TEST_F(ModelsTest, ASessionHasSoManyAtMost) {
  for (uint64_t id = 1; id <= Models::kMaxModels; ++id) {
    ASSERT_TRUE(models_.Register(id, "net", 1).ok());
  }
  EXPECT_EQ(ErrorReason(models_.Register(5000, "net", 1)), "MAX_MODELS");
  EXPECT_FALSE(models_.Adopt(State(5000, 1)));
}

TEST_F(ModelsTest, NoneThatIsThereNeedBeKnownToBeRemoved) {
  Limit(1, 1000);
  EXPECT_EQ(ErrorReason(models_.Register(1, "a", 2000)), "MODEL_BYTES");
  models_.Remove(1);
  EXPECT_TRUE(models_.Register(2, "b", 10).ok());
  EXPECT_EQ(ErrorReason(models_.Register(3, "c", 10)), "MAX_MODELS");
}

TEST_F(ModelsTest, TheLargestAreNamed) {
  for (uint64_t id = 1; id <= 40; ++id) {
    EXPECT_TRUE(models_.Register(id, std::to_string(id), id).ok());
  }
  const v1::SessionUse use = UseOf(models_);
  EXPECT_EQ(use.model_count(), 40u);
  EXPECT_EQ(use.model_bytes(), 820u);
  ASSERT_EQ(use.models_size(), Models::kMaxReported);
  EXPECT_EQ(use.models(0).name(), "40");
  EXPECT_EQ(use.models(0).size_bytes(), 40u);
  EXPECT_EQ(use.models(15).name(), "25");
}

TEST_F(ModelsTest, SumsStayBelowTheMostThereIs) {
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  EXPECT_TRUE(models_.Register(1, "a", most).ok());
  EXPECT_TRUE(models_.Register(2, "b", 5).ok());
  EXPECT_EQ(UseOf(models_).model_bytes(), most);
}

TEST_F(ModelsTest, ModelsMovedHereCountBeyondTheBudget) {
  EXPECT_TRUE(models_.Register(4, "net", 5000).ok());
  EXPECT_TRUE(models_.Register(9, "head", 50).ok());
  v1::SessionState state;
  models_.Describe(&state);
  ASSERT_EQ(state.models_size(), 2);

  TenantAccount there;
  v1::TenantLimits limits;
  limits.set_max_models(1);
  limits.set_model_bytes(100);
  there.SetLimits(limits);
  Models moved(&there);
  for (const v1::ModelState& model : state.models()) {
    EXPECT_TRUE(moved.Adopt(model));
  }
  EXPECT_EQ(UseOf(moved).model_bytes(), 5050u);
  EXPECT_EQ(UseOf(moved).models(0).name(), "net");
  EXPECT_EQ(UseOf(moved).refused_models(), 0u);
  EXPECT_EQ(ErrorReason(moved.Register(10, "more", 1)), "MAX_MODELS");
  moved.Remove(4);
  moved.Remove(9);
  EXPECT_TRUE(moved.Register(10, "more", 1).ok());
}

TEST_F(ModelsTest, AWorkerThatNamesWhatCannotBeIsNotBelieved) {
  EXPECT_FALSE(models_.Adopt(State(0, 1)));
  EXPECT_FALSE(
      models_.Adopt(State(1, 1, std::string(Models::kMaxNameBytes + 1, 'x'))));
  EXPECT_TRUE(models_.Adopt(State(1, 1)));
  EXPECT_FALSE(models_.Adopt(State(1, 1)));
  EXPECT_EQ(UseOf(models_).model_count(), 1u);
}

}  // namespace
}  // namespace djinn::worker
