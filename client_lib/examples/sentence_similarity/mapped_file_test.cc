#include "client_lib/examples/sentence_similarity/mapped_file.h"

#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace djinn::examples {
namespace {

std::string WriteFile(absl::string_view name, absl::string_view contents) {
  const std::string path = testing::TempDir() + "/" + std::string(name);
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

std::string Text(const MappedFile& file) {
  return std::string(reinterpret_cast<const char*>(file.bytes().data()),
                     file.bytes().size());
}

TEST(MappedFileTest, ShowsTheBytesOfTheFile) {
  auto file = MappedFile::Open(WriteFile("some", "bytes of a file"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(Text(*file), "bytes of a file");
}

TEST(MappedFileTest, EmptyFileIsAnEmptySpan) {
  auto file = MappedFile::Open(WriteFile("empty", ""));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFileTest, MissingFileIsNotFoundAndNamed) {
  auto file = MappedFile::Open(testing::TempDir() + "/absent");
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(file.status().message().find("absent"), absl::string_view::npos);
}

TEST(MappedFileTest, FolderIsRefused) {
  auto file = MappedFile::Open(testing::TempDir());
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MappedFileTest, SpansSurviveAMove) {
  auto file = MappedFile::Open(WriteFile("moved", "moved bytes"));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto bytes = file->bytes();
  MappedFile other = *std::move(file);
  EXPECT_EQ(other.bytes().data(), bytes.data());
  EXPECT_EQ(Text(other), "moved bytes");

  auto replaced = MappedFile::Open(WriteFile("replaced", "replaced"));
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  *replaced = std::move(other);
  EXPECT_EQ(Text(*replaced), "moved bytes");
}

}  // namespace
}  // namespace djinn::examples
