#include "common/net/monitoring_config.h"

#include "absl/strings/match.h"
#include "common/net/tls_config.h"

namespace djinn {

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
