#include "common/net/tls_config.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/net/server_address.h"

namespace djinn {
namespace {

void NoteProblem(ConfigMap* root, absl::string_view key, bool insecure,
                 const absl::Status& status) {
  if (!status.ok()) root->Error(key, status.message());
  if (insecure && root->Has(key)) {
    root->Error("insecure",
                absl::StrCat("contradicts ", key, ": leave one of them out"));
  }
}

}  // namespace

ServerTls ReadServerTls(ConfigMap* root, absl::string_view key, bool insecure) {
  ServerTls tls;
  if (!root->Has(key)) return tls;
  ConfigMap map = root->Map(key);
  tls.certificate_file = map.RequiredPath("certificate_file");
  tls.private_key_file = map.RequiredPath("private_key_file");
  tls.client_ca_file = map.Path("client_ca_file");
  NoteProblem(root, key, insecure, CheckServerTls(tls));
  return tls;
}

ChannelTls ReadChannelTls(ConfigMap* root, absl::string_view key,
                          bool insecure) {
  ChannelTls tls;
  if (!root->Has(key)) return tls;
  ConfigMap map = root->Map(key);
  tls.ca_file = map.RequiredPath("ca_file");
  tls.certificate_file = map.Path("certificate_file");
  tls.private_key_file = map.Path("private_key_file");
  tls.server_name = map.String("server_name", "");
  NoteProblem(root, key, insecure, CheckChannelTls(tls));
  return tls;
}

void CheckConfigAddress(ConfigMap* root, absl::string_view key,
                        const std::string& address, bool other_hosts) {
  const absl::Status status = CheckAddress(address, other_hosts);
  if (!status.ok()) root->Error(key, status.message());
}

MonitoringConfig ReadMonitoring(ConfigMap* root) {
  MonitoringConfig config;
  ConfigMap map = root->Map("monitoring");
  config.listen = map.String("listen", "");
  config.insecure = map.Bool("insecure", false);
  if (absl::StartsWith(config.listen, "unix:")) {
    map.Error("listen", "expected host:port, got \"" + config.listen + "\"");
  } else if (!config.listen.empty()) {
    CheckConfigAddress(&map, "listen", config.listen, config.insecure);
  } else if (config.insecure) {
    map.Error("insecure", "there is no listen beside it");
  }
  return config;
}

}  // namespace djinn
