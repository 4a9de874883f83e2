#include "server/daemon/certificate_watch.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

namespace gpunbd::server {

void CertificateWatch::open() { check(server_validities(context_.options)); }

Service::Commit CertificateWatch::reload(const config::Options& next, Problems& /*problems*/) {
    return [this, loaded = server_validities(next)] { check(loaded); };
}

std::vector<Validity> CertificateWatch::validities() const {
    const Lock lock(mutex_);
    return validities_;
}

void CertificateWatch::check(std::vector<Validity> loaded) {
    const std::time_t now = std::time(nullptr);
    for (const Validity& each : loaded) {
        const auto warning = validity_warning(each, now);
        if (!warning) continue;
        spdlog::log(warning->invalid ? spdlog::level::err : spdlog::level::warn, "tls: {}",
                    warning->text);
    }
    const Lock lock(mutex_);
    validities_ = std::move(loaded);
}

void CertificateWatch::check_later() {
    constexpr std::time_t day = 24 * 3600;
    const std::time_t now = std::time(nullptr);
    std::time_t wait = day;
    for (const Validity& each : validities()) {
        if (each.until > now) wait = std::min(wait, each.until - now);
    }
    timer_.expires_after(std::chrono::seconds(wait));
    timer_.async_wait([this](boost::system::error_code error) {
        if (error) return;
        check(validities());
        check_later();
    });
}

}  // namespace gpunbd::server
