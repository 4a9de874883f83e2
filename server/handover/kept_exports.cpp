#include "server/handover/kept_exports.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

#include "config/yaml_file.hpp"
#include "server/supervisor/descriptor_store.hpp"
#include "storage/pages/page_table.hpp"

namespace gpunbd::server {

namespace {

constexpr std::string_view created_comment = "# created: ";
constexpr std::string_view made_by_comment = "# made_by: ";
constexpr std::string_view client_id_comment = "# client_id: ";
constexpr std::string_view peer_comment = "# peer: ";
constexpr std::string_view renamed_contents_comment = "# renamed_contents: ";

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

std::string provenance_comments(const config::Provenance& provenance) {
    std::string out;
    if (provenance.created != 0) out = fmt::format("{}{}\n", created_comment, provenance.created);
    if (!provenance.renamed_contents.empty()) {
        out += fmt::format("{}{}\n", renamed_contents_comment, provenance.renamed_contents);
    }
    if (provenance.made_by.empty()) return out;
    return out + fmt::format("{}{}\n{}{}\n{}{}\n", made_by_comment, provenance.made_by,
                             client_id_comment, static_cast<int>(provenance.client_id),
                             peer_comment, provenance.peer);
}

config::Provenance provenance_in(std::string_view text) {
    config::Provenance provenance{.run_time = true};
    while (text.starts_with('#')) {
        const std::string_view line = text.substr(0, text.find('\n'));
        const auto value_of = [line](std::string_view comment) -> std::string {
            if (!line.starts_with(comment)) return {};
            return std::string(line.substr(comment.size()));
        };
        if (const std::string time = value_of(created_comment); !time.empty()) {
            std::from_chars(time.data(), time.data() + time.size(), provenance.created);
        }
        if (std::string name = value_of(made_by_comment); !name.empty()) provenance.made_by = name;
        if (std::string peer = value_of(peer_comment); !peer.empty()) provenance.peer = peer;
        if (std::string id = value_of(renamed_contents_comment); !id.empty()) {
            provenance.renamed_contents = id;
        }
        for (const auto id :
             {config::ClientId::tls_name, config::ClientId::address, config::ClientId::machine}) {
            if (value_of(client_id_comment) == std::to_string(static_cast<int>(id))) {
                provenance.client_id = id;
            }
        }
        text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
    return provenance;
}

KeptExports::KeptExports(DescriptorStore& store, PassedDescriptors& handed_over) : store_(store) {
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
        loaded.options.provenance = provenance_in(each.text);
        // An earlier gpunbd wrote no such comment.
        if (stored_.contains(loaded.options.name)) {
            store_.remove(each.name);
            continue;
        }
        stored_.emplace(loaded.options.name, Stored{each.name, std::move(each.descriptor)});
        earlier_.push_back(std::move(loaded.options));
    }
}

Expected<void> KeptExports::keep(const config::ExportOptions& options) {
    return replace(options.name, options);
}

Expected<void> KeptExports::rename(const std::string& from, const config::ExportOptions& options) {
    return replace(from, options);
}

Expected<void> KeptExports::replace(const std::string& earlier,
                                    const config::ExportOptions& options) {
    const Lock lock(mutex_);
    const auto found = stored_.find(earlier);
    const std::string replaces =
        found == stored_.end() ? "" : fmt::format("{}{}\n", replaces_comment, found->second.name);
    const std::string text = fmt::format(
        "{}{}{}", replaces, provenance_comments(options.provenance), config::to_yaml(options));
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

void KeptExports::drop(const std::string& name) {
    const Lock lock(mutex_);
    const auto found = stored_.find(name);
    if (found == stored_.end()) return;
    if (const auto wrong = store_.remove(found->second.name)) {
        spdlog::warn("the supervisor still stores a removed export: {}", *wrong);
    }
    stored_.erase(found);
}

std::vector<KeptExports::Copy> KeptExports::copies() const {
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
