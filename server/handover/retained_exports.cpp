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
#include <set>
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

// Before the other comments: the descriptor that this one replaces. Its name is never used again,
// so the comment may stay.
constexpr std::string_view replaces_comment = "# replaces: ";

std::string replaced_by(std::string_view text) {
    if (!text.starts_with(replaces_comment)) return {};
    text.remove_prefix(replaces_comment.size());
    return std::string(text.substr(0, text.find('\n')));
}

}  // namespace

RetainedExports::RetainedExports(DescriptorStore& store, InheritedDescriptors& handed_over)
    : store_(store) {
    struct Found {
        std::string name;  // of the descriptor
        OwnedFd descriptor;
        std::string text;
    };
    std::vector<Found> all;
    std::set<std::string> replaced;
    for (const std::string& name : handed_over.names()) {
        if (!name.starts_with(exports_prefix)) continue;
        for (OwnedFd& each : handed_over.take(name)) {
            std::string text = text_in(each.get()).value_or("");
            replaced.insert(replaced_by(text));
            all.push_back({name, std::move(each), std::move(text)});
        }
    }
    for (Found& each : all) {
        // A server that was killed while it replaced the options may have left both.
        if (replaced.contains(each.name)) {
            store_.remove(each.name);
            continue;
        }
        config::LoadedExport loaded = config::load_export_text(each.text, each.name);
        if (!loaded.problems.empty()) {
            spdlog::error("an export that was created at run time is lost: {}",
                          loaded.problems.front().text());
            store_.remove(each.name);
            continue;
        }
        loaded.options.origin = origin_in(each.text);
        // An earlier gpunbd wrote no such comment.
        if (stored_.contains(loaded.options.name)) {
            store_.remove(each.name);
            continue;
        }
        stored_.emplace(loaded.options.name, Stored{each.name, std::move(each.descriptor)});
        inherited_.push_back(std::move(loaded.options));
    }
}

Expected<void> RetainedExports::keep(const config::ExportOptions& options) {
    return replace(options.name, options);
}

Expected<void> RetainedExports::rename(const std::string& from,
                                       const config::ExportOptions& options) {
    return replace(from, options);
}

Expected<void> RetainedExports::replace(const std::string& earlier,
                                        const config::ExportOptions& options) {
    const Lock lock(mutex_);
    const auto found = stored_.find(earlier);
    const std::string replaces =
        found == stored_.end() ? "" : fmt::format("{}{}\n", replaces_comment, found->second.name);
    const std::string text =
        fmt::format("{}{}{}", replaces, origin_comments(options.origin), config::to_yaml(options));
    OwnedFd file(::memfd_create("gpunbd export", MFD_CLOEXEC));
    const auto length = static_cast<ssize_t>(text.size());
    if (!file || ::write(file.get(), text.data(), text.size()) != length) {
        return fmt::format("no memory for its options: {}", std::strerror(errno));
    }
    Stored next{exports_prefix + storage::instance_text(storage::new_instance()), std::move(file)};
    if (const auto wrong = store_.store(next.name, next.descriptor.get())) {
        return fmt::format("the supervisor cannot store its options: {}", *wrong);
    }
    if (found != stored_.end()) {
        store_.remove(found->second.name);
        stored_.erase(found);
    }
    stored_.insert_or_assign(options.name, std::move(next));
    return {};
}

void RetainedExports::forget(const std::string& name) {
    const Lock lock(mutex_);
    const auto found = stored_.find(name);
    if (found == stored_.end()) return;
    if (const auto wrong = store_.remove(found->second.name)) {
        spdlog::warn("the supervisor still stores a removed export: {}", *wrong);
    }
    stored_.erase(found);
}

std::vector<RetainedExports::Copy> RetainedExports::copies() const {
    const Lock lock(mutex_);
    std::vector<Copy> all;
    for (const auto& [unused, each] : stored_) {
        OwnedFd copy = OwnedFd::copy_of(each.descriptor);
        if (!copy) throw std::system_error(errno, std::generic_category(), "no descriptor is left");
        all.push_back({each.name, std::move(copy)});
    }
    return all;
}

}  // namespace gpunbd::server
