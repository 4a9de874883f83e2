#include "storage/migration/shortage_log.hpp"

#include <utility>

#include "storage/base/log_line.hpp"
#include "storage/migration/reason_for_staying.hpp"

namespace gpunbd::storage {

bool ShortageLog::report(const Device& device, const Migration& result, std::string_view need) {
    if (result.missing() == 0 && result.error.empty()) return false;
    if (std::exchange(is_reported_, true)) return true;
    const DeviceInfo& info = device.info();
    log_if_possible([&] {
        LogLine(spdlog::level::warn)
            .with("device", info.id)
            .with("bytes", result.missing())
            .log("{}: {}, and pages stay: {}", info.id, need, reason_for_staying(result));
    });
    return true;
}

}  // namespace gpunbd::storage
