#include "server/tools/serve/read_flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "config/devices/device_drivers.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/schema.hpp"

namespace gpunbd::tools {
namespace {

using namespace config;

class Reader {
 public:
    Reader(const Description& serve, const GivenFlags& given) : serve_(serve), given_(given) {}

    ServeCommand read() const {
        ServeCommand out;
        out.config_file = file_name("--config");
        out.pidfile = file_name("--pidfile");
        out.exit_with_parent = given_.given("--exit-with-parent");
        out.background = given_.given("--background");
        out.core_dumps = given_.given("--core-dumps");
        if (const auto* command = given_.text("--run")) {
            if (command->find_first_not_of(" \t\n") == std::string::npos) {
                throw UsageError(
                    "--run: the command is empty; write for example --run 'nbdinfo \"$uri\"'");
            }
            out.run = *command;
        }
        if (!out.config_file) {
            read_export(out.options);
            read_listeners(out.options);
        }
        for (auto& [flag, text] : single_values()) {
            if (!flag->with_file) continue;
            set(flag->name, text, out.options);
            out.overrides.values.emplace_back(flag->key, std::move(text));
        }
        if (const auto* admin = given_.text("--admin")) read_admin(*admin, out);
        refuse_credentials_without_tls(out.options);
        out.overrides.apply_to(out.options);
        if (given_.given("--tls-verify-clients") && !out.config_file &&
            out.options.tls.certificates.empty()) {
            throw UsageError(
                "--tls-verify-clients requires certificates; add --tls-certificates, or leave it "
                "out");
        }
        if (out.options.tls.mode != TlsMode::off && !out.config_file &&
            !out.options.tls.has_credentials()) {
            throw UsageError(
                "--tls: TLS needs certificates or shared keys; add for example --tls-certificates "
                "/etc/gpunbd/tls");
        }
        return out;
    }

 private:
    // Sets the key of the flag `name`.
    void set(std::string_view name, std::string_view text, Options& options) const {
        const auto wrong = set_key(find_flag(serve_, name)->key, text, options);
        if (wrong) throw UsageError(fmt::format("{}: {}", name, *wrong));
    }

    // The name of a file, which may not exist yet.
    std::optional<std::string> file_name(std::string_view name) const {
        const auto* file = given_.text(name);
        if (file == nullptr) return std::nullopt;
        if (!file->empty()) return *file;
        throw UsageError(fmt::format("{}: the name of the file is empty; write for example {} {}",
                                     name, name, find_flag(serve_, name)->example));
    }

    // The keys of flags with a single value, in the order of the flags, with their values.
    std::vector<std::pair<const Flag*, std::string>> single_values() const {
        std::vector<std::pair<const Flag*, std::string>> out;
        for (const FlagGroup& group : serve_.groups) {
            for (const Flag& flag : group.flags) {
                if (flag.key.empty() || flag.repeats || !given_.given(flag.name)) continue;
                out.emplace_back(&flag, flag.takes.empty() ? "true" : *given_.text(flag.name));
            }
        }
        return out;
    }

    void read_devices(Options& out) const {
        const auto& given = given_.all("--device");
        if (given.size() == 1 && given[0] == "auto") return;
        auto& devices = out.exports[0].devices;
        for (const std::string& device : given) {
            if (device == "auto") {
                throw UsageError(
                    "--device auto excludes other devices: gpunbd chooses the device; leave one of "
                    "the two out");
            }
            set("--device", device, out);
            if (std::find(devices.begin(), devices.end() - 1, devices.back()) !=
                devices.end() - 1) {
                throw UsageError(
                    fmt::format("--device {} is given twice; give each device once", device));
            }
            if (devices.size() > rules::max_devices) {
                throw UsageError(
                    fmt::format("--device is given more than {} times", rules::max_devices));
            }
        }
    }

    // PLACE=SIZE
    SpillOptions spill_in(const std::string& text) const {
        const std::size_t end = text.rfind('=');
        if (end == std::string::npos || end == 0) {
            throw UsageError(fmt::format("--spill: {} is not PLACE=SIZE; write for example {}",
                                         in_quotes(text), find_flag(serve_, "--spill")->example));
        }
        std::string place = text.substr(0, end);
        if (place[0] == '/') {
            const auto of_files = std::ranges::find_if(device_drivers(), &DriverInfo::spill_only);
            place = fmt::format("{}:{}", of_files->scheme, place);
        }
        const auto refuse = [](const rules::Wrong& wrong) {
            throw UsageError(fmt::format("--spill: {}", wrong.what));
        };
        const auto id = rules::spill_id(place);
        if (const auto* wrong = std::get_if<rules::Wrong>(&id)) refuse(*wrong);
        const auto size = rules::bytes(text.substr(end + 1), {64 * KiB, rules::max_export_size});
        if (const auto* wrong = std::get_if<rules::Wrong>(&size)) refuse(*wrong);
        return {.device = std::get<std::string>(id), .size = std::get<std::uint64_t>(size)};
    }

    std::vector<SpillOptions> read_spill(const std::vector<std::string>& devices) const {
        std::vector<SpillOptions> out;
        for (const std::string& text : given_.all("--spill")) {
            SpillOptions spill = spill_in(text);
            if (devices.empty()) {
                throw UsageError(
                    fmt::format("--spill requires --device; add it, for example --device {}",
                                example_device()));
            }
            if (std::ranges::find(out, spill.device, &SpillOptions::device) != out.end()) {
                throw UsageError(fmt::format("--spill {} is given twice; give each place once",
                                             in_quotes(spill.device)));
            }
            if (std::ranges::find(devices, spill.device) != devices.end()) {
                throw UsageError(fmt::format(
                    "--spill: {} cannot take its own pages; name another device, or a file",
                    spill.device));
            }
            if (out.size() == rules::max_spills) {
                throw UsageError(
                    fmt::format("--spill is given more than {} times", rules::max_spills));
            }
            out.push_back(std::move(spill));
        }
        return out;
    }

    void read_device_options(Options& out) const {
        const std::vector<std::string>& ids = out.exports[0].devices;
        const std::vector<SpillOptions> spill = read_spill(ids);
        const std::string* reserve = given_.text("--reserve");
        if (reserve != nullptr && ids.empty()) {
            throw UsageError(fmt::format(
                "--reserve requires --device; add it, for example --device {}", example_device()));
        }
        std::vector<const DriverInfo::Setting*> settings;  // of the devices of one driver
        for (const DriverInfo& driver : device_drivers()) {
            for (const DriverInfo::Setting& setting : driver.settings) {
                if (setting.flag.empty() || !given_.given(setting.flag)) continue;
                settings.push_back(&setting);
                const auto has = [&](const auto& id) { return has_setting(id, setting.key); };
                if (std::ranges::any_of(ids, has)) continue;
                throw UsageError(fmt::format(
                    "{} is for {}; add --device, for example --device {}, or leave it out",
                    setting.flag, setting.purpose, driver.example));
            }
        }
        for (const std::string& id : ids) {
            const auto applies = [&](const auto* setting) { return has_setting(id, setting->key); };
            if (reserve == nullptr && spill.empty() && std::ranges::none_of(settings, applies)) {
                continue;
            }
            out.devices.emplace_back().id = id;
            out.devices.back().spill = spill;
            if (reserve != nullptr) set("--reserve", *reserve, out);
            for (const auto* setting : settings) {
                if (applies(setting)) set(setting->flag, "true", out);
            }
        }
    }

    void read_export(Options& out) const {
        out.exports.emplace_back();
        for (const auto& [flag, text] : single_values()) {
            if (flag->key.starts_with("exports[]")) set(flag->name, text, out);
        }
        if (const auto error = rules::stripe_error(out.exports[0], "--layout", "--page-size")) {
            throw UsageError("--stripe-size: " + *error);
        }
        if (const auto error = rules::size_error(out.exports[0], "--block-size")) {
            throw UsageError("--size: " + *error);
        }
        if (out.exports[0].swap && !given_.given("--provision")) {
            out.exports[0].provision = Provision::full;
        }
        read_devices(out);
        if (out.exports[0].layout == LayoutKind::stripe && out.exports[0].devices.size() < 2) {
            throw UsageError(
                "--layout stripe needs two devices or more; repeat --device for each, or leave "
                "--layout out");
        }
        read_device_options(out);
    }

    // [CID:]PORT
    void read_vsock(std::string_view text, Options& out) const {
        out.vsock.emplace_back();
        const auto set_part = [&](std::string_view key, std::string_view part) {
            const auto wrong = set_key(key, part, out);
            if (wrong) throw UsageError(fmt::format("--vsock: {}", *wrong));
        };
        const std::size_t colon = text.find(':');
        if (colon != std::string_view::npos)
            set_part("listeners.vsock[].cid", text.substr(0, colon));
        set_part("listeners.vsock[].port", text.substr(colon + 1));  // npos + 1 is 0
    }

    void read_listeners(Options& out) const {
        if (given_.given("--run")) return;

        std::set<std::string> seen;
        for (const std::string& path : given_.all("--unix")) {
            out.unix_sockets.emplace_back();
            set("--unix", path, out);
            if (!seen.insert(path).second) {
                throw UsageError(
                    fmt::format("--unix {} is given twice; give each path once", in_quotes(path)));
            }
        }
        for (const std::string& text : given_.all("--vsock")) {
            read_vsock(text, out);
            if (!seen.insert(fmt::format("{}:{}", out.vsock.back().cid, out.vsock.back().port))
                     .second) {
                throw UsageError(
                    fmt::format("--vsock {} is given twice; give each port once", in_quotes(text)));
            }
        }
        const bool others = given_.given("--unix") || given_.given("--vsock");
        if (others && !given_.given("--port") && !given_.given("--bind")) return;

        out.tcp = default_listeners(TcpListener{}.port);
        if (const auto* port = given_.text("--port")) {
            set("--port", *port, out);
            out.tcp = default_listeners(out.tcp.back().port);
        }
        if (!given_.given("--bind")) return;
        const std::uint16_t port = out.tcp[0].port;
        out.tcp.clear();
        for (const std::string& address : given_.all("--bind")) {
            out.tcp.emplace_back().port = port;
            set("--bind", address, out);
            if (!seen.insert(rules::tcp_identity(out.tcp.back())).second) {
                throw UsageError(fmt::format("--bind {} is given twice; give each address once",
                                             in_quotes(address)));
            }
        }
    }

    // ADDRESS[:PORT]; an IPv6 address with a port is in brackets.
    void read_admin(std::string_view text, ServeCommand& out) const {
        const auto set_part = [&](std::string_view key, std::string_view part) {
            const auto wrong = set_key(key, part, out.options);
            if (wrong) throw UsageError(fmt::format("--admin: {}", *wrong));
            out.overrides.values.emplace_back(key, part);
        };
        std::string_view address = text;
        const std::size_t colon = text.rfind(':');
        const bool bracketed = text.starts_with('[');
        const bool has_port =
            colon != std::string_view::npos &&
            (bracketed ? colon > 0 && text[colon - 1] == ']' : text.find(':') == colon);
        if (has_port) {
            set_part("admin.tcp.port", text.substr(colon + 1));
            address = text.substr(0, colon);
        }
        if (bracketed && address.ends_with(']')) address = address.substr(1, address.size() - 2);
        set_part("admin.tcp.address", address);
    }

    // With --config, --tls off disables the TLS of the file. With other TLS flags it is a
    // contradiction.
    void refuse_credentials_without_tls(const Options& options) const {
        if (!given_.given("--tls") || options.tls.mode != TlsMode::off) return;
        for (std::string_view name : {"--tls-certificates", "--tls-psk", "--tls-verify-clients"}) {
            if (!given_.given(name)) continue;
            throw UsageError(
                fmt::format("--tls off and {} exclude each other; leave one of the two out", name));
        }
    }

    const Description& serve_;
    const GivenFlags& given_;
};

}  // namespace

ServeCommand read_serve_flags(const Description& serve, const GivenFlags& given) {
    return Reader(serve, given).read();
}

}  // namespace gpunbd::tools
