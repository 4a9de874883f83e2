#include "config/serve_command.hpp"

#include <algorithm>

#include "config/rules.hpp"
#include "config/schema.hpp"

namespace gpunbd::config {

void Overrides::apply_to(Options& options) const {
    bool credentials = false;
    bool mode = false;
    for (const auto& [key, text] : values) {
        set_key(key, text, options);
        credentials = credentials || key == "tls.certificates" || key == "tls.psk";
        mode = mode || key == "tls.mode";
        if (key == "admin.tcp.address") options.admin.tcp.port_option = {admin_flag};
    }
    // Credentials imply TLS.
    if (credentials && !mode && options.tls.mode == TlsMode::off) {
        options.tls.mode = TlsMode::required;
    }
    options.pipeline.pinned =
        std::max(options.pipeline.pinned, rules::min_pinned(options.pipeline));
}

}  // namespace gpunbd::config
