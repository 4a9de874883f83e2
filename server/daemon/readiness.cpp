#include "server/daemon/readiness.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "config/quote.hpp"
#include "server/daemon/server_context.hpp"
#include "server/net/nbd_uri.hpp"

namespace gpunbd::server {

namespace {

// The first names and the number of the others.
std::string summary(const std::vector<std::string>& names) {
    constexpr std::size_t shown = 4;
    std::string out;
    for (std::size_t i = 0; i != std::min(shown, names.size()); ++i) {
        out += (i == 0 ? "" : ", ") + config::in_quotes(names[i]);
    }
    return names.size() > shown ? fmt::format("{} and {} more", out, names.size() - shown) : out;
}

}  // namespace

void Readiness::start() {
    Supervision& supervision = context_.supervision;
    if (const auto unknown = supervision.descriptors.names(); !unknown.empty()) {
        spdlog::warn("the supervisor stores descriptors with unknown names, which stay there: {}",
                     summary(unknown));
    }
    if (!context_.command.run) log_ready();
    supervision.notify_ready(any_keeps(context_.options.exports));
}

void Readiness::drain() {
    spdlog::info("stopping: answering the requests in flight");
    context_.supervision.notify("STOPPING=1");
}

void Readiness::log_ready() const {
    const config::Options& options = context_.options;
    const auto& listeners = listeners_.all();
    const auto uri = listeners.empty() ? std::nullopt
                                       : listeners.front()->uri(options.exports.front().name,
                                                                first_export_needs_tls(options));
    if (uri) {
        spdlog::info("ready: {} (try: nbdinfo {})", *uri, shell_word(*uri));
    } else {
        spdlog::info("ready");
    }
}

}  // namespace gpunbd::server
