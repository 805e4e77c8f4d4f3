#include "common/base/quota_failure.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/quota_failure.pb.h"

namespace djinn {

absl::Status WithQuotaFailure(absl::Status status, absl::string_view tenant) {
  if (status.ok()) return status;
  google::rpc::QuotaFailure failure;
  google::rpc::QuotaFailure::Violation* const violation =
      failure.add_violations();
  violation->set_subject(absl::StrCat("tenant:", tenant));
  violation->set_description(std::string(status.message()));
  status.SetPayload("type.googleapis.com/google.rpc.QuotaFailure",
                    absl::Cord(failure.SerializeAsString()));
  return status;
}

}  // namespace djinn
