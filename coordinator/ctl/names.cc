#include "coordinator/ctl/names.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace djinn::ctl {
namespace {

std::string Shorten(int number, const std::string& name,
                    absl::string_view prefix) {
  if (number == 0) return "-";
  if (name.empty()) return absl::StrCat(number);  // not known to this build
  return absl::AsciiStrToLower(absl::StripPrefix(name, prefix));
}

}  // namespace

std::string Name(v1::Phase phase) {
  return Shorten(phase, v1::Phase_Name(phase), "PHASE_");
}
std::string Name(v1::Modality modality) {
  return Shorten(modality, v1::Modality_Name(modality), "MODALITY_");
}
std::string Name(v1::Residency residency) {
  return Shorten(residency, v1::Residency_Name(residency), "RESIDENCY_");
}
std::string Name(v1::WorkloadClass workload_class) {
  return Shorten(workload_class, v1::WorkloadClass_Name(workload_class),
                 "WORKLOAD_CLASS_");
}
std::string Name(v1::TaskType task_type) {
  return Shorten(task_type, v1::TaskType_Name(task_type), "TASK_TYPE_");
}

std::string DescribeShape(
    v1::DataType data_type,
    const google::protobuf::RepeatedField<int64_t>& sizes) {
  return absl::StrCat(
      Shorten(data_type, v1::DataType_Name(data_type), "DATA_TYPE_"), "[",
      absl::StrJoin(sizes, ","), "]");
}

std::string FormatCount(uint64_t count) {
  if (count < 1000) return absl::StrCat(count);
  double value = static_cast<double>(count);
  const char* unit = "";
  for (const char* const next : {"k", "M", "G", "T", "P", "E"}) {
    if (value < 1000) break;
    value /= 1000;
    unit = next;
  }
  return absl::StrFormat("%.3g%s", value, unit);
}

}  // namespace djinn::ctl
