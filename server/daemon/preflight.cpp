#include "server/daemon/preflight.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>

#include "config/network.hpp"
#include "config/origin_cycle.hpp"
#include "config/rules.hpp"
#include "config/size.hpp"
#include "server/base/file_checks.hpp"
#include "server/daemon/admin_service.hpp"
#include "server/daemon/state_folder.hpp"
#include "server/exports/access_list.hpp"
#include "server/exports/volume_plan.hpp"
#include "server/net/credentials/certificate_folder.hpp"
#include "server/net/tcp_address.hpp"
#include "server/net/transport/tls_context.hpp"
#include "server/net/unix_address.hpp"
#include "server/net/vsock_address.hpp"
#include "server/protection/protection.hpp"
#include "storage/images/restore_image.hpp"

namespace gpunbd::server {

namespace {

// Whether the kernel refuses to listen on both. Sockets of IPv6 take no connections of IPv4.
bool overlap(const config::TcpListener& one, const config::TcpListener& other) {
    const auto first = config::parse_zoned_address(one.address);
    const auto second = config::parse_zoned_address(other.address);
    if (one.port != other.port || !first || !second) return false;
    if (first->address.v6 != second->address.v6) return false;
    const config::IpAddress any{.v6 = first->address.v6};
    return *first == *second || first->address == any || second->address == any;
}

class Preflight {
 public:
    void run(const config::Options& options) {
        const auto open = open_to_all(options);
        for (std::size_t i = 0; i != options.tcp.size(); ++i) {
            const std::string key = fmt::format("listeners.tcp[{}]", i);
            try_tcp(key, options.tcp[i]);
            const auto parsed = config::parse_zoned_address(options.tcp[i].address);
            if (!open || (parsed && parsed->address.loopback())) continue;
            const std::string where = name_of(options.tcp[i]);
            if (options.insecure) {
                note(key, insecure_text(where, *open));
            } else {
                fail(key, exposure_text(where, *open));
            }
        }
        for (std::size_t i = 0; i != options.unix_sockets.size(); ++i) {
            try_unix(fmt::format("listeners.unix[{}]", i), options.unix_sockets[i]);
        }
        for (std::size_t i = 0; i != options.vsock.size(); ++i) {
            try_vsock(fmt::format("listeners.vsock[{}]", i), options.vsock[i]);
        }
        try_tls(options);
        if (auto warning = unproved_in_tls(options)) note("tls", std::move(*warning));
        if (auto warning = unused_credentials(options)) note("tls", std::move(*warning));
        try_admin(options);
        try_state(options);
        try_swap(options.exports);
        DeviceRegistry devices(options.devices, false);
        Promised promised;
        config::ServerAddresses own{.tcp = options.tcp, .sockets = {}};
        for (const auto& each : options.unix_sockets) own.sockets.push_back(each.path);
        const auto cycle = config::origin_cycle(options.exports, own);
        for (std::size_t i = 0; i != options.exports.size(); ++i) {
            const std::string key = fmt::format("exports[{}]", i);
            if (cycle && cycle->exported == i) {
                fail(key + ".origin.nbd", cycle->what);
            } else {
                try_export(key, options.exports[i], devices, promised);
            }
        }
    }
    std::vector<Finding> take() { return std::move(findings_); }

 private:
    void fail(std::string key, std::string text) {
        findings_.push_back({true, std::move(key), std::move(text)});
    }
    void note(std::string key, std::string text) {
        findings_.push_back({false, std::move(key), std::move(text)});
    }

    // Returns true, with a note, if a gpunbd server uses the address: it may be the server of this
    // file.
    bool noted_as_ours(const std::string& key, const AddressError& error) {
        if (error.kind != AddressError::Kind::taken || error.holder.program != "gpunbd") {
            return false;
        }
        note(key, fmt::format(
                      "not tried: it is in use{}; this is correct if that server serves this file",
                      error.holder.by()));
        return true;
    }

    void try_tcp(const std::string& key, const config::TcpListener& options) {
        const auto other = std::ranges::find_if(
            tcp_, [&](const auto& each) { return overlap(each.second, options); });
        if (other != tcp_.end()) {
            return fail(key, fmt::format("{}: the port is taken by {}; choose another port ({})",
                                         name_of(options), other->first, options.port_option.text));
        }
        tcp_.emplace_back(key, options);
        try {
            static_cast<void>(bind_tcp(options));
        } catch (const AddressError& error) {
            if (options.optional && error.kind == AddressError::Kind::absent) {
                note(key, fmt::format("{}: skipped", error.what()));
            } else if (!noted_as_ours(key, error)) {
                fail(key, error.what());
            }
        }
    }

    void try_path(const std::string& key, const config::UnixListener& options) {
        const auto other = std::ranges::find_if(paths_, [&](const auto& each) {
            return config::rules::same_file(each.second, options.path);
        });
        if (other != paths_.end()) {
            return fail(key, fmt::format("{}: the path is taken by {}; choose another path",
                                         name_of(options), other->first));
        }
        paths_.emplace_back(key, options.path);
        try {
            is_stale_socket(options);
            const std::string why_not = cannot_create(options.path);
            if (!why_not.empty()) fail(key, why_not);
        } catch (const AddressError& error) {
            if (!noted_as_ours(key, error)) fail(key, error.what());
        }
    }

    void try_unix(const std::string& key, const config::UnixListener& options) {
        try_path(key + ".path", options);
        if (options.owner.empty()) return;
        try {
            if (!may_give_to(find_owner(options.owner))) {
                note(key + ".owner",
                     fmt::format(
                         "not tried: uid {} may not give files to {}; run the server as root",
                         ::geteuid(), options.owner));
            }
        } catch (const std::runtime_error& error) {
            fail(key + ".owner", error.what());
        }
    }

    // The kernel does not report which process uses a vsock port.
    void try_vsock(const std::string& key, const config::VsockListener& options) {
        try {
            static_cast<void>(bind_vsock(options));
            if (!local_cid()) note(key, no_vsock_transport());
        } catch (const AddressError& error) {
            if (error.kind != AddressError::Kind::taken) return fail(key, error.what());
            note(key, fmt::format("{} (this is correct if a server of this file uses it)",
                                  error.what()));
        }
    }

    void try_tls(const config::Options& options) {
        try {
            static_cast<void>(TlsContext::load(options));
            for (const Validity& each : server_validities(options)) {
                if (auto found = validity_warning(each, std::time(nullptr))) {
                    note("tls", std::move(found->text));
                }
            }
        } catch (const std::runtime_error& error) {
            fail("tls", error.what());
        }
    }

    void try_admin(const config::Options& options) {
        const config::AdminOptions& admin = options.admin;
        const auto try_socket = [this](const char* key, const std::optional<std::string>& path) {
            if (!path) return;
            config::UnixListener socket;
            socket.path = *path;
            try_path(key, socket);
        };
        if (admin.socket != config::no_socket) try_socket("admin.socket", admin.socket);
        try_socket("keeping.socket", options.keeping.socket);
        if (!admin.tcp.address) return;
        try_tcp("admin.tcp", {.address = *admin.tcp.address,
                              .port = admin.tcp.port,
                              .port_option = admin.tcp.port_option});
        try {
            static_cast<void>(admin_policy(options.admin));
        } catch (const std::runtime_error& error) {
            fail("admin.tcp.token", error.what());
        }
        try {
            static_cast<void>(admin_tls(options));
        } catch (const std::runtime_error& error) {
            fail("admin.tcp.tls", error.what());
        }
    }

    void try_state(config::Options options) {
        std::string folder = options.state;
        if (folder.empty()) return;
        while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
        std::error_code error;
        if (!std::filesystem::exists(folder, error)) {  // reading it would create it
            if (std::string why = cannot_create(folder); !why.empty()) fail("state", why);
            return;
        }
        for (const config::Problem& each : add_persistent_exports(options)) {
            fail("state", each.text());
        }
    }

    void try_files(const std::string& key, const config::ExportOptions& options) {
        if (!options.save.path.empty()) {  // the server continues without this file
            std::string why = cannot_create(options.save.path);
            if (!why.empty()) note(key + ".save.path", std::move(why));
        }
        if (options.restore.empty()) return;
        const auto size = storage::image_size(options.restore);
        const auto* const why = std::get_if<std::string>(&size);
        if (why == nullptr) return;
        if (!options.keep) return fail(key + ".restore", *why);
        note(key + ".restore", *why + "; this is correct if the contents are kept");
    }

    void try_swap(const config::ExportList& exports) {
        const auto first = std::find_if(exports.begin(), exports.end(),
                                        [](const auto& each) { return each.swap; });
        if (first == exports.end()) return;
        const std::string key =
            fmt::format("exports[{}].swap", std::distance(exports.begin(), first));
        for (std::string& each : missing_protections()) fail(key, std::move(each));
    }

    void try_export(const std::string& key, const config::ExportOptions& options,
                    DeviceRegistry& devices, Promised& promised) {
        try_files(key, options);
        // The memory is that of its source.
        if (!options.clone_of.empty() || options.is_template()) return;
        try {
            const VolumePlan plan = plan_volume(options, devices, promised);
            if (!plan.instead_of_gpu.empty()) {
                note(key + ".devices",
                     fmt::format("no GPU can be used ({}): {} of host memory would be served",
                                 plan.instead_of_gpu, config::human_size(plan.options.size)));
            }
            if (options.layout == config::LayoutKind::stripe && plan.devices.size() < 2) {
                note(key + ".layout",
                     "stripe has no effect on one device; add devices, or remove layout");
            }
            if (options.swap && options.provision == config::Provision::thin) {
                note(key + ".provision",
                     "thin: if the device has no free memory, a swapped-out page is lost");
            }
            if (plan.options.provision != storage::Provision::full) return;
            for (std::uint32_t i = 0; i != plan.devices.size(); ++i) {
                promised[plan.devices[i]] += plan.layout.pages_on(i) * plan.options.page_size;
            }
        } catch (const storage::DeviceInUse& error) {
            note(key + ".devices",
                 fmt::format("not tried: {}; this is correct if that server serves this file",
                             error.what()));
        } catch (const std::exception& error) {
            fail(key, error.what());
        }
    }

    std::vector<Finding> findings_;
    std::vector<std::pair<std::string, config::TcpListener>> tcp_;  // with their keys
    std::vector<std::pair<std::string, std::string>> paths_;  // of Unix sockets, with their keys
};

}  // namespace

std::vector<Finding> try_out(const config::Options& options) {
    Preflight preflight;
    preflight.run(options);
    return preflight.take();
}

}  // namespace gpunbd::server
