#include <cstdint>
#include <initializer_list>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/core/dispatch/Dispatcher.h"
#include "common/base/error.h"
#include "common/torch/allow_list.h"
#include "common/torch/data_type.h"
#include "common/torch/generator_operators.h"
#include "common/torch/overwrite_table.h"
#include "common/torch/packed_operators.h"
#include "common/torch/random_table.h"
#include "common/torch/schema_hash.h"
#include "common/torch/sparse_operators.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

c10::OperatorHandle Find(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

const c10::FunctionSchema& Schema(const char* name, const char* overload) {
  return Find(name, overload).schema();
}

c10::Argument TensorArgument(const char* name, bool written) {
  std::optional<c10::AliasInfo> alias;
  if (written) {
    alias.emplace();
    alias->addBeforeSet(c10::Symbol::fromQualString("alias::a"));
    alias->addAfterSet(c10::Symbol::fromQualString("alias::a"));
    alias->setIsWrite(true);
  }
  return c10::Argument(name, c10::TensorType::get(), c10::TensorType::get(),
                       std::nullopt, std::nullopt, false, std::move(alias));
}

c10::Argument IntArgument(const char* name, c10::TypePtr real_type,
                          std::optional<c10::IValue> value = std::nullopt,
                          bool kwarg_only = false) {
  return c10::Argument(name, c10::IntType::get(), std::move(real_type),
                       std::nullopt, std::move(value), kwarg_only);
}

uint64_t HashOf(std::string name, std::string overload,
                std::vector<c10::Argument> arguments,
                std::vector<c10::Argument> returns) {
  return SchemaHash(c10::FunctionSchema(std::move(name), std::move(overload),
                                        std::move(arguments),
                                        std::move(returns)));
}

TEST(SchemaHashTest, IsTheSameInEveryProcess) {
  EXPECT_EQ(SchemaHash(Schema("aten::add", "Tensor")), 10968426799482697637ULL);
  EXPECT_EQ(SchemaHash(Schema("aten::split", "Tensor")),
            15575498299307874430ULL);
}

TEST(SchemaHashTest, DependsOnEverythingButDefaults) {
  const auto base = [](std::optional<c10::IValue> value) {
    return HashOf("aten::f", "x",
                  {TensorArgument("a", false),
                   IntArgument("n", c10::IntType::get(), std::move(value))},
                  {TensorArgument("", false)});
  };
  const uint64_t hash = base(std::nullopt);
  EXPECT_EQ(base(c10::IValue(1)), hash);
  const c10::Argument a = TensorArgument("a", false);
  const c10::Argument n = IntArgument("n", c10::IntType::get());
  const c10::Argument result = TensorArgument("", false);
  EXPECT_EQ(HashOf("aten::f", "x", {a, n}, {result}), hash);
  EXPECT_NE(HashOf("aten::g", "x", {a, n}, {result}), hash);
  EXPECT_NE(HashOf("aten::f", "", {a, n}, {result}), hash);
  EXPECT_NE(HashOf("aten::f", "x", {a}, {result}), hash);
  EXPECT_NE(HashOf("aten::f", "x", {a, n}, {}), hash);
  EXPECT_NE(HashOf("aten::f", "x", {TensorArgument("b", false), n}, {result}),
            hash);
  EXPECT_NE(HashOf("aten::f", "x", {TensorArgument("a", true), n}, {result}),
            hash);
  EXPECT_NE(HashOf("aten::f", "x",
                   {a, IntArgument("n", c10::ScalarTypeType::get())}, {result}),
            hash);
  EXPECT_NE(
      HashOf("aten::f", "x",
             {a, IntArgument("n", c10::IntType::get(), std::nullopt, true)},
             {result}),
      hash);
}

TEST(DataTypeTest, RoundTrips) {
  int known = 0;
  for (int number = 0; number < static_cast<int>(c10::ScalarType::NumOptions);
       ++number) {
    const auto type = static_cast<c10::ScalarType>(number);
    const std::optional<srg::DataType> data_type = DataTypeFromTorch(type);
    if (!data_type.has_value()) continue;
    ++known;
    EXPECT_EQ(DataTypeToTorch(*data_type), type);
    EXPECT_EQ(srg::ElementSize(*data_type), c10::elementSize(type));
  }
  EXPECT_EQ(known, 41);
}

TEST(DataTypeTest, UnknownOnesAreNone) {
  EXPECT_EQ(DataTypeFromTorch(c10::kQInt8), std::nullopt);
  EXPECT_EQ(DataTypeFromTorch(c10::kQUInt2x4), std::nullopt);
  EXPECT_EQ(DataTypeFromTorch(c10::ScalarType::Undefined), std::nullopt);
  EXPECT_EQ(DataTypeToTorch(srg::DataType::kUnspecified), std::nullopt);
  EXPECT_EQ(DataTypeToTorch(static_cast<srg::DataType>(13)), std::nullopt);
  EXPECT_EQ(DataTypeToTorch(static_cast<srg::DataType>(200)), std::nullopt);
}

TEST(OverwriteTableTest, OutputsOfOverloadsWithAMode) {
  EXPECT_TRUE(Overwrites(Schema("aten::div", "out_mode"), 3));
  EXPECT_FALSE(Overwrites(Schema("aten::div", "out_mode"), 0));
}

TEST(OverwriteTableTest, InPlace) {
  EXPECT_TRUE(Overwrites(Schema("aten::zero_", ""), 0));
  EXPECT_TRUE(Overwrites(Schema("aten::fill_", "Scalar"), 0));
  EXPECT_TRUE(Overwrites(Schema("aten::fill_", "Tensor"), 0));
  EXPECT_FALSE(Overwrites(Schema("aten::fill_", "Tensor"), 1));
  EXPECT_TRUE(Overwrites(Schema("aten::copy_", ""), 0));
  EXPECT_FALSE(Overwrites(Schema("aten::copy_", ""), 1));
  EXPECT_TRUE(Overwrites(Schema("aten::normal_", ""), 0));
  EXPECT_TRUE(Overwrites(Schema("aten::bernoulli_", "float"), 0));
  EXPECT_TRUE(Overwrites(Schema("aten::bernoulli_", "Tensor"), 0));
  EXPECT_FALSE(Overwrites(Schema("aten::bernoulli_", "Tensor"), 1));
  EXPECT_FALSE(Overwrites(Schema("aten::add_", "Tensor"), 0));
  EXPECT_FALSE(Overwrites(Schema("aten::masked_fill_", "Scalar"), 0));
  EXPECT_FALSE(Overwrites(Schema("aten::zero_", ""), 7));
}

TEST(OverwriteTableTest, OutArguments) {
  EXPECT_TRUE(Overwrites(Schema("aten::add", "out"), 3));
  EXPECT_FALSE(Overwrites(Schema("aten::add", "out"), 0));
  EXPECT_TRUE(Overwrites(Schema("aten::sum", "IntList_out"), 4));
  EXPECT_TRUE(Overwrites(Schema("aten::native_layer_norm", "out"), 7));
  EXPECT_FALSE(Overwrites(Schema("aten::empty", "out"), 2));
  // The running statistics are neither keyword-only nor named as outputs.
  EXPECT_FALSE(Overwrites(Schema("aten::_native_batch_norm_legit", "out"), 3));
}

TEST(UnmarkedWritesTest, RunningStatistics) {
  for (const auto& [name, overload, mean, flag] :
       std::initializer_list<std::tuple<const char*, const char*, size_t, int>>{
           {"aten::batch_norm", "", 3, 5},
           {"aten::native_batch_norm", "", 3, 5},
           {"aten::native_batch_norm", "out", 3, 5},
           {"aten::instance_norm", "", 3, -1},
           {"aten::batch_norm_update_stats", "", 1, -1},
           {"aten::batch_norm_update_stats", "out", 1, -1}}) {
    SCOPED_TRACE(name);
    const c10::FunctionSchema& schema = Schema(name, overload);
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const std::optional<UnmarkedWrite> write = FindUnmarkedWrite(schema, i);
      ASSERT_EQ(write.has_value(), i == mean || i == mean + 1) << i;
      if (!write.has_value()) continue;
      EXPECT_EQ(write->flag.has_value() ? static_cast<int>(*write->flag) : -1,
                flag);
    }
    EXPECT_FALSE(FindUnmarkedWrite(schema, 99).has_value());
  }
}

TEST(UnmarkedWritesTest, MarkedAndReadStatisticsAreNone) {
  EXPECT_FALSE(
      FindUnmarkedWrite(Schema("aten::_native_batch_norm_legit", ""), 3)
          .has_value());
  EXPECT_FALSE(
      FindUnmarkedWrite(Schema("aten::native_batch_norm_backward", ""), 3)
          .has_value());
  EXPECT_FALSE(FindUnmarkedWrite(Schema("aten::add", "Tensor"), 0).has_value());
}

TEST(RandomTableTest, TellsTheGenerator) {
  EXPECT_EQ(DrawSourceOf(Find("aten::add", "Tensor"), {}), DrawSource::kNone);
  EXPECT_EQ(DrawSourceOf(Find("aten::normal_", ""), {}),
            DrawSource::kGeneratorArgument);
  EXPECT_EQ(DrawSourceOf(Find("aten::multinomial", ""), {}),
            DrawSource::kGeneratorArgument);
  EXPECT_EQ(DrawSourceOf(Find("aten::randn", ""), {}),
            DrawSource::kDefaultGenerator);
  EXPECT_EQ(DrawSourceOf(Find("aten::scaled_dot_product_attention", ""), {}),
            DrawSource::kDefaultGenerator);
}

TEST(RandomTableTest, EvaluationDrawsNothing) {
  const c10::OperatorHandle dropout = Find("aten::dropout", "");
  const std::vector<c10::IValue> training = {c10::IValue(), 0.5, true};
  const std::vector<c10::IValue> evaluating = {c10::IValue(), 0.5, false};
  EXPECT_EQ(DrawSourceOf(dropout, training), DrawSource::kDefaultGenerator);
  EXPECT_EQ(DrawSourceOf(dropout, evaluating), DrawSource::kNone);
  // None for `train` means training.
  EXPECT_EQ(DrawSourceOf(Find("aten::native_dropout", ""),
                         {c10::IValue(), 0.5, c10::IValue()}),
            DrawSource::kDefaultGenerator);
}

TEST(AllowListTest, PlainOperatorsPass) {
  const std::pair<const char*, const char*> kAllowed[] = {
      {"aten::add", "Tensor"},
      {"aten::mm", ""},
      {"aten::index", "Tensor"},
      {"aten::cat", ""},
      {"aten::sum", "dim_IntList"},
      {"aten::convolution_backward", ""},
      {"aten::lstm", "input"},
      {"aten::max", "dim"},
      {"aten::_foreach_add_", "Scalar"},
      {"aten::select", "int"},
      {"aten::dropout", ""},
      {"aten::_softmax", ""},
      {"aten::index_select", ""},
      {"aten::scaled_dot_product_attention", ""},
      {"aten::einsum", ""},
      {"aten::_to_copy", ""},
      {"aten::quantile", ""}};
  for (const auto& [name, overload] : kAllowed) {
    const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
    if (!op.has_value()) continue;
    EXPECT_EQ(CheckAllowed(op->schema()), absl::OkStatus());
  }
}

TEST(AllowListTest, OperatorsOnPartsOfSparseTensorsPass) {
  DefineSparseOperators();
  EXPECT_TRUE(CheckAllowed(Schema("djinn_sparse::addmm", "strided")).ok());
  EXPECT_TRUE(CheckAllowed(Schema("djinn_sparse::_coalesce", "")).ok());
  EXPECT_TRUE(CheckAllowed(Schema("djinn_sparse::add_", "")).ok());
}

TEST(AllowListTest, OperatorsOnPartsOfPackedWeightsPass) {
  DefinePackedOperators();
  for (const PackedOperator& op : PackedOperators()) {
    EXPECT_TRUE(CheckAllowed(op.on_parts.schema()).ok());
    EXPECT_FALSE(CheckAllowed(op.original.schema()).ok());
  }
}

TEST(AllowListTest, OperatorsOnStatesOfGeneratorsPass) {
  DefineGeneratorOperators();
  EXPECT_TRUE(CheckAllowed(Schema("djinn_random::state", "")).ok());
  EXPECT_TRUE(CheckAllowed(Schema("djinn_random::set_state", "")).ok());
}

TEST(AllowListTest, RefusesWhatIsNoComputation) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"aten::from_file", ""},
      {"aten::set_", "source_Storage"},
      {"aten::set_", "source_Tensor"},
      {"aten::resize_", ""},
      {"aten::resize_as_", ""},
      {"aten::record_stream", ""},
      {"aten::pin_memory", ""},
      {"aten::_test_warn_in_autograd", ""},
      {"aten::_to_sparse", ""},
      {"aten::_sparse_mm", ""},
      {"aten::quantize_per_tensor", ""},
      {"aten::quantized_lstm", "input"},
      {"aten::mkldnn_linear", ""},
      {"aten::t_", ""},
      {"aten::_reshape_alias", ""},
      {"aten::_local_scalar_dense", ""},
      {"aten::item", ""},
      {"aten::equal", ""},
      {"aten::size", "int"},
      {"aten::sum", "dim_DimnameList"},
      {"aten::rand", "names"},
      {"aten::max", "names_dim"},
      {"prim::device", ""},
      {"mkldnn::_linear_pointwise", ""}};
  for (const auto& [name, overload] : kRefused) {
    const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
    if (!op.has_value()) continue;
    const absl::Status status = CheckAllowed(op->schema());
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << name;
    EXPECT_EQ(ErrorReason(status), "OPERATOR_REFUSED") << name;
    EXPECT_NE(status.message().find(name), absl::string_view::npos) << status;
  }
}

TEST(AllowListTest, OperatorsOfOtherLibrariesComputeTensors) {
  const auto schema = [](c10::TypePtr taken, c10::TypePtr returned) {
    return c10::FunctionSchema("mine::f", "",
                               {c10::Argument("x", c10::TensorType::get()),
                                c10::Argument("y", std::move(taken))},
                               {c10::Argument("", std::move(returned))});
  };
  const c10::TypePtr tensor = c10::TensorType::get();
  const c10::TypePtr tensors = c10::ListType::create(tensor);
  EXPECT_TRUE(CheckCustom(schema(tensor, tensor)).ok());
  EXPECT_TRUE(CheckCustom(schema(c10::FloatType::get(), tensors)).ok());
  for (const auto& [taken, returned] :
       std::initializer_list<std::pair<c10::TypePtr, c10::TypePtr>>{
           {tensor, c10::IntType::get()},
           {c10::StorageType::get(), tensor},
           {c10::ListType::create(c10::StringType::get()), tensor}}) {
    const absl::Status status = CheckCustom(schema(taken, returned));
    EXPECT_EQ(ErrorReason(status), "OPERATOR_REFUSED") << status;
  }
  // Other namespaces need a library that is trusted.
  EXPECT_EQ(ErrorReason(CheckAllowed(schema(tensor, tensor))),
            "OPERATOR_REFUSED");
}

}  // namespace
}  // namespace djinn
