#include "common/net/tracing/tracing_config.h"

#include "common/net/tls_config.h"

namespace djinn {

TracingConfig ReadTracing(ConfigMap* root) {
  TracingConfig config;
  ConfigMap map = root->Map("tracing");
  config.endpoint = map.String("endpoint", "");
  config.sample_ratio = map.Number("sample_ratio", config.sample_ratio, 0, 1);
  config.insecure = map.Bool("insecure", false);
  config.tls = ReadChannelTls(&map, "tls", config.insecure);
  if (!config.endpoint.empty()) {
    CheckConfigAddress(&map, "endpoint", config.endpoint,
                       config.insecure || config.tls.enabled());
    return config;
  }
  for (const char* const key : {"sample_ratio", "insecure", "tls"}) {
    if (map.Has(key)) map.Error(key, "there is no endpoint beside it");
  }
  return config;
}

std::vector<std::string> TracingDifferences(const TracingConfig& running,
                                            const TracingConfig& read) {
  std::vector<std::string> keys;
  const auto compare = [&](const char* key, const auto& before,
                           const auto& after) {
    if (before != after) keys.emplace_back(key);
  };
  compare("tracing.endpoint", running.endpoint, read.endpoint);
  compare("tracing.sample_ratio", running.sample_ratio, read.sample_ratio);
  compare("tracing.insecure", running.insecure, read.insecure);
  compare("tracing.tls.ca_file", running.tls.ca_file, read.tls.ca_file);
  compare("tracing.tls.certificate_file", running.tls.certificate_file,
          read.tls.certificate_file);
  compare("tracing.tls.private_key_file", running.tls.private_key_file,
          read.tls.private_key_file);
  compare("tracing.tls.server_name", running.tls.server_name,
          read.tls.server_name);
  return keys;
}

}  // namespace djinn
