#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "config/devices/device_drivers.hpp"
#include "config/quote.hpp"
#include "server/tools/doctor/topics.hpp"

namespace gpunbd::server {

namespace {

// The file system that has the file, or its folder if the server is to make the file.
std::optional<dev_t> file_system_of(const std::string& path) {
    struct stat found {};
    if (::stat(path.c_str(), &found) == 0) return found.st_dev;
    const auto folder = std::filesystem::path(path).parent_path();
    if (::stat(folder.empty() ? "." : folder.c_str(), &found) == 0) return found.st_dev;
    return std::nullopt;
}

// Pages leave the device when its memory is needed, and are read from the origin again then.
Diagnoses check_disk(const config::ExportOptions& exported, const config::Options& options) {
    Diagnoses out;
    const auto its = file_system_of(exported.origin.file);
    if (exported.origin.file.empty() || !its) return out;
    for (const config::DeviceOptions& device : options.devices) {
        for (const config::SpillOptions& spill : device.spill) {
            if (!config::is_spill_only(spill.device)) continue;
            const std::string path = spill.device.substr(spill.device.find(':') + 1);
            const std::string what =
                fmt::format("disk of the origin of {}", config::in_quotes(exported.name));
            if (file_system_of(path) != its) {
                out.push_back(ok(what, fmt::format("not that of {}", path)));
            } else {
                out.push_back(warn(what,
                                   fmt::format("{} is on one file system with {}, to which {} "
                                               "spills, so each slows the other down",
                                               exported.origin.file, path, device.id),
                                   "move one of the two to another disk"));
            }
        }
    }
    return out;
}

Diagnosis check_write_back(const Machine& machine, const config::ExportOptions& exported) {
    const std::string what = fmt::format("write-back of {}", config::in_quotes(exported.name));
    const std::string is = fmt::format(
        "a crash of the server loses changes of up to {} s that the origin does not have",
        exported.origin.max_age.count());
    if (machine.has("/run/systemd/system")) {  // as check_supervisor()
        return ok(what, is + "; systemd can start it again, and keep: true preserves them");
    }
    return warn(what, is + ", and systemd is not running to start it again",
                "add keep: true and use gpunbd keep, which starts it again, or use mode: "
                "write-through, which loses none");
}

}  // namespace

Diagnoses check_origins(const Machine& machine, const config::Options& options) {
    Diagnoses out;
    for (const config::ExportOptions& each : options.exports) {
        for (Diagnosis& found : check_disk(each, options)) out.push_back(std::move(found));
        if (each.origin.mode == config::OriginMode::write_back && !each.keep) {
            out.push_back(check_write_back(machine, each));
        }
    }
    return out;
}

}  // namespace gpunbd::server
