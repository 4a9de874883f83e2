#include "server/handover/retained_exports.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "config/yaml_file.hpp"
#include "server/handover/origin_comments.hpp"
#include "server/supervisor/descriptor_name.hpp"
#include "storage/pages/page_table.hpp"

namespace gpunbd::server {

namespace {

const std::string exports_prefix = std::string(own_prefix) + "export/";
constexpr off_t max_text = 1 << 20;  // bytes

std::optional<std::string> text_in(int fd) {
    struct stat file {};
    if (::fstat(fd, &file) != 0 || file.st_size <= 0 || file.st_size > max_text) {
        return std::nullopt;
    }
    std::string text(static_cast<std::size_t>(file.st_size), '\0');
    if (::pread(fd, text.data(), text.size(), 0) != file.st_size) return std::nullopt;
    return text;
}

}  // namespace

RetainedExports::RetainedExports(DescriptorStore& store, InheritedDescriptors& handed_over)
    : store_(store) {
    for (const std::string& name : handed_over.names()) {
        if (!name.starts_with(exports_prefix)) continue;
        for (OwnedFd& each : handed_over.take(name)) {
            const auto text = text_in(each.get());
            config::LoadedExport loaded = config::load_export_text(text.value_or(""), name);
            if (!loaded.problems.empty()) {
                spdlog::error("an export that was created at run time is lost: {}",
                              loaded.problems.front().text());
                store_.remove(name);
                continue;
            }
            loaded.options.origin = origin_in(*text);
            // A server that died while it replaced the options may have left both.
            const auto [at, is_new] =
                stored_.try_emplace(loaded.options.name, Stored{name, std::move(each)});
            if (!is_new) {
                store_.remove(name);
                continue;
            }
            inherited_.push_back(std::move(loaded.options));
        }
    }
}

std::string RetainedExports::keep(const config::ExportOptions& options) {
    const std::string text = origin_comments(options.origin) + config::to_yaml(options);
    OwnedFd file(::memfd_create("gpunbd export", MFD_CLOEXEC));
    const auto length = static_cast<ssize_t>(text.size());
    if (!file || ::write(file.get(), text.data(), text.size()) != length) {
        return fmt::format("no memory for its options: {}", std::strerror(errno));
    }
    Stored next{exports_prefix + storage::instance_text(storage::new_instance()), std::move(file)};
    const std::lock_guard lock(mutex_);
    if (const auto wrong = store_.store(next.name, next.descriptor.get())) {
        return fmt::format("the supervisor cannot store its options: {}", *wrong);
    }
    const auto [at, is_new] = stored_.try_emplace(options.name);
    if (!is_new) store_.remove(at->second.name);
    at->second = std::move(next);
    return {};
}

void RetainedExports::forget(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = stored_.find(name);
    if (found == stored_.end()) return;
    if (const auto wrong = store_.remove(found->second.name)) {
        spdlog::warn("the supervisor still stores a removed export: {}", *wrong);
    }
    stored_.erase(found);
}

std::vector<RetainedExports::Copy> RetainedExports::copies() const {
    const std::lock_guard lock(mutex_);
    std::vector<Copy> all;
    for (const auto& [unused, each] : stored_) {
        OwnedFd copy = OwnedFd::copy_of(each.descriptor);
        if (!copy) throw std::system_error(errno, std::generic_category(), "no descriptor is left");
        all.push_back({each.name, std::move(copy)});
    }
    return all;
}

}  // namespace gpunbd::server
