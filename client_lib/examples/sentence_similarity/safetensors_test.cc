#include "client_lib/examples/sentence_similarity/safetensors.h"

#include <cstring>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::examples {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string LittleEndian64(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i)));
  }
  return bytes;
}

// A file with the given header and so many bytes of data: 0, 1, 2, ...
std::string FileWith(absl::string_view header, size_t data_bytes) {
  std::string file =
      absl::StrCat(LittleEndian64(header.size()), std::string(header));
  for (size_t i = 0; i < data_bytes; ++i) file.push_back(static_cast<char>(i));
  return file;
}

absl::StatusOr<StoredTensors> Parse(const std::string& file) {
  return ParseSafetensors(absl::MakeConstSpan(
      reinterpret_cast<const std::byte*>(file.data()), file.size()));
}

constexpr absl::string_view kTwoTensors = R"({
  "__metadata__": {"format": "pt"},
  "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [4, 28]},
  "scale": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}})";

TEST(SafetensorsTest, FindsTensorsWhereTheHeaderSays) {
  const std::string file = FileWith(kTwoTensors, 28);
  auto tensors = Parse(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2);

  const StoredTensor& weight = tensors->at("weight");
  EXPECT_EQ(weight.type, ElementType::kFloat32);
  EXPECT_THAT(weight.shape, ElementsAre(2, 3));
  EXPECT_EQ(weight.bytes.size(), 24);
  EXPECT_EQ(std::to_integer<int>(weight.bytes[0]), 4);
  EXPECT_EQ(tensors->at("scale").type, ElementType::kBfloat16);
}

TEST(SafetensorsTest, SingleNumbersAndEmptyTensorsAreTensors) {
  const std::string file = FileWith(R"({
    "number": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
    "nothing": {"dtype": "F64", "shape": [3, 0, 9223372036854775807],
                "data_offsets": [8, 8]}})",
                                    8);
  auto tensors = Parse(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->at("number").bytes.size(), 8);
  EXPECT_TRUE(tensors->at("nothing").bytes.empty());
}

TEST(SafetensorsTest, HeaderMayBePaddedWithSpaces) {
  EXPECT_TRUE(Parse(FileWith("{}      ", 0)).ok());
}

struct BadFile {
  std::string what;
  std::string file;
  std::string complaint;
};

// The header of one tensor "t" with these fields.
std::string One(absl::string_view fields) {
  return absl::StrCat("{\"t\": {", fields, "}}");
}

TEST(SafetensorsTest, BadFilesAreRefusedWithTheReason) {
  const BadFile cases[] = {
      {"empty", "", "only 0 bytes"},
      {"shorter than the length", "1234567", "only 7 bytes"},
      {"length beyond the limit", LittleEndian64(uint64_t{1} << 40) + "{}",
       "the limit is 16777216"},
      {"largest length", LittleEndian64(~uint64_t{0}) + "{}", "the limit is"},
      {"cut within the header", LittleEndian64(100) + "{\"t\"", "cut short"},
      {"header of length zero", LittleEndian64(0), "not valid JSON"},
      {"not JSON", FileWith("no header", 4), "not valid JSON"},
      {"name twice", FileWith(R"({"t": {}, "t": {}})", 0),
       "\"t\" appears twice"},
      {"entry is a number", FileWith(R"({"t": 3})", 0), "not an object"},
      {"no type", FileWith(One(R"("shape": [1], "data_offsets": [0, 4])"), 4),
       "\"dtype\" is not a text"},
      {"unknown type",
       FileWith(One(R"("dtype": "F5", "shape": [1], "data_offsets": [0, 4])"),
                4),
       "unknown element type \"F5\""},
      {"no shape",
       FileWith(One(R"("dtype": "F32", "data_offsets": [0, 4])"), 4),
       "\"shape\" is not a list"},
      {"negative size",
       FileWith(One(R"("dtype": "F32", "shape": [-1], "data_offsets": [0, 4])"),
                4),
       "\"shape\" is not a list"},
      {"fractional size",
       FileWith(
           One(R"("dtype": "F32", "shape": [1.0], "data_offsets": [0, 4])"), 4),
       "\"shape\" is not a list"},
      {"size above int64",
       FileWith(One(R"("dtype": "U8", "shape": [9223372036854775808],
                       "data_offsets": [0, 4])"),
                4),
       "\"shape\" is not a list"},
      {"one offset",
       FileWith(One(R"("dtype": "F32", "shape": [1], "data_offsets": [4])"), 4),
       "not a pair"},
      {"offsets swapped",
       FileWith(One(R"("dtype": "F32", "shape": [1], "data_offsets": [4, 0])"),
                4),
       "not within"},
      {"offsets beyond the file",
       FileWith(One(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 8])"),
                4),
       "not within"},
      {"shape does not fit its bytes",
       FileWith(One(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 4])"),
                4),
       "needs 8 bytes, its offsets give 4"},
      {"shape that overflows to the right size",
       FileWith(One(R"("dtype": "U8", "shape": [4294967296, 4294967296],
                       "data_offsets": [0, 0])"),
                0),
       "too large"},
      {"hole before a tensor",
       FileWith(One(R"("dtype": "U8", "shape": [2], "data_offsets": [2, 4])"),
                4),
       "2 unused bytes lie before it"},
      {"bytes after the last tensor",
       FileWith(One(R"("dtype": "U8", "shape": [2], "data_offsets": [0, 2])"),
                4),
       "2 bytes after the last tensor"},
      {"overlap",
       FileWith(R"({"a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
                    "b": {"dtype": "U8", "shape": [2], "data_offsets": [2, 4]}
                   })",
                4),
       "\"b\": it overlaps"},
  };
  for (const BadFile& bad : cases) {
    SCOPED_TRACE(bad.what);
    auto tensors = Parse(bad.file);
    EXPECT_EQ(tensors.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(tensors.status().message()),
                HasSubstr(bad.complaint));
  }
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string file = FileWith(kTwoTensors, 28);
  for (size_t length = 0; length < file.size(); ++length) {
    EXPECT_FALSE(Parse(file.substr(0, length)).ok()) << length;
  }
}

TEST(SafetensorsTest, AnyDamagedByteIsRefusedOrReadWithinBounds) {
  // No byte of a file may make the reader look outside it; the address
  // sanitizer sees to that, the loop below touches every byte it was given.
  const std::string good = FileWith(kTwoTensors, 28);
  for (size_t place = 0; place < good.size(); ++place) {
    for (const char damage : {'\0', '\xff', '9', '"', '}', '['}) {
      std::string file = good;
      file[place] = damage;
      auto tensors = Parse(file);
      if (!tensors.ok()) continue;
      int sum = 0;
      for (const auto& [name, tensor] : *tensors) {
        for (const std::byte byte : tensor.bytes) {
          sum += std::to_integer<int>(byte);
        }
      }
      EXPECT_GE(sum, 0);
    }
  }
}

TEST(SafetensorsFileTest, KeepsTheFileMapped) {
  const std::string path = testing::TempDir() + "/two.safetensors";
  std::ofstream(path, std::ios::binary) << FileWith(kTwoTensors, 28);
  auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  SafetensorsFile moved = *std::move(file);
  EXPECT_EQ(std::to_integer<int>(moved.tensors().at("weight").bytes[23]), 27);
}

TEST(SafetensorsFileTest, ErrorsNameTheFile) {
  const std::string path = testing::TempDir() + "/short.safetensors";
  std::ofstream(path, std::ios::binary) << "short";
  auto file = SafetensorsFile::Open(path);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(file.status().message()),
              HasSubstr("short.safetensors: "));
}

}  // namespace
}  // namespace djinn::examples
