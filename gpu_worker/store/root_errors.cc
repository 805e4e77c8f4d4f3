#include "gpu_worker/store/root_errors.h"

#include "common/base/error.h"

namespace djinn::worker {

RootError RootErrors::Make(const absl::Status& status, Place place) {
  auto detail = std::make_shared<v1::ErrorDetail>();
  FillDetail(status, detail.get());
  if (ErrorReason(status).empty() && !place.operator_name.empty()) {
    detail->set_reason("OPERATOR_FAILED");
  }
  detail->set_error_id(random_->NonZero64());
  detail->set_sequence(place.sequence);
  if (place.node.has_value()) detail->set_node(*place.node);
  detail->set_operator_name(std::move(place.operator_name));
  detail->set_operands(std::move(place.operands));
  detail->set_worker_id(worker_id_);
  detail->set_tenant(tenant_);
  detail->set_lane(lane_);
  ++count_;
  return detail;
}

RootError RootErrors::MakePoison(const absl::Status& status, Place place) {
  RootError error = Make(status, std::move(place));
  new_.push_back(error);
  return error;
}

}  // namespace djinn::worker
