// Provides shortcuts that the coordinator's tests share.
#ifndef COORDINATOR_TESTING_TESTING_H_
#define COORDINATOR_TESTING_TESTING_H_

#include <string>

#include "common/net/protocol_version.h"
#include "coordinator/config/config.h"
#include "djinn/v1/session.pb.h"
#include "djinn/v1/srg.pb.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::coordinator {

inline Tenant TestTenant(const std::string& name) {
  Tenant tenant;
  tenant.name = name;
  tenant.token = name + "-token";
  tenant.max_sessions = 4;
  tenant.limits.set_memory_bytes(1 << 30);
  tenant.limits.set_max_outstanding(256);
  tenant.limits.set_max_outstanding_bytes(1 << 20);
  tenant.limits.set_inline_bytes(1 << 16);
  tenant.limits.set_max_graphs(16);
  tenant.totals.set_memory_bytes(uint64_t{2} << 30);
  tenant.totals.set_max_outstanding(512);
  tenant.totals.set_max_outstanding_bytes(2 << 20);
  return tenant;
}

// Tenants "red" and "blue", with default times.
inline Config TestConfig() {
  Config config;
  config.listen = "127.0.0.1:0";
  config.join_token = "join-token";
  config.admin_token = "admin-token";
  config.tenants = {TestTenant("red"), TestTenant("blue")};
  return config;
}

inline v1::WorkerState TestWorker(const std::string& id,
                                  uint64_t incarnation = 1) {
  v1::WorkerState state;
  state.set_worker_id(id);
  state.set_incarnation(incarnation);
  state.set_address("unix:/run/" + id + ".sock");
  state.set_protocol_version(kProtocolVersion);
  state.set_device("fake");
  state.set_memory_bytes(uint64_t{8} << 30);
  state.set_free_bytes(uint64_t{8} << 30);
  state.set_complete(true);
  return state;
}

inline void AddContent(const std::string& tenant, uint64_t hash, uint64_t size,
                       v1::WorkerState* state) {
  v1::HeldContent* const content = state->add_contents();
  content->set_tenant(tenant);
  content->set_hash_high(hash);
  content->set_hash_low(hash);
  content->set_size_bytes(size);
}

inline v1::OpenSession TestOpen(const std::string& resume = "") {
  v1::OpenSession open;
  open.set_protocol_version(kProtocolVersion);
  open.set_program("test");
  open.set_resume_session_id(resume);
  return open;
}

inline v1::LeaseRequest TestLeaseRequest(uint32_t device, uint64_t hash = 0,
                                         uint64_t size = 0) {
  v1::LeaseRequest request;
  request.set_virtual_device(device);
  if (size > 0) {
    v1::ContentHint* const hint = request.add_contents();
    hint->set_hash_high(hash);
    hint->set_hash_low(hash);
    hint->set_size_bytes(size);
  }
  return request;
}

// Makes a graph of relu() of a vector of `size` floats; each size gives another
// graph.
inline v1::Graph TestGraph(int64_t size) {
  v1::Graph graph;
  graph.add_operators()->set_name("aten::relu");
  graph.add_slots()->set_kind(v1::Slot::BOUND);
  graph.add_slots()->set_kind(v1::Slot::RESULT);
  v1::Node* const node = graph.add_nodes();
  v1::TensorView* const in = node->add_arguments()->mutable_tensor();
  in->set_slot(0);
  in->set_data_type(v1::DATA_TYPE_FLOAT32);
  in->add_sizes(size);
  in->add_strides(1);
  v1::TensorView* const out = node->add_results()->mutable_view();
  *out = *in;
  out->set_slot(1);
  return graph;
}

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TESTING_TESTING_H_
