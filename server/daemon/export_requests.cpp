#include "server/daemon/export_requests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>
#include <variant>

#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/size.hpp"
#include "storage/images/restore_image.hpp"

namespace gpunbd::server {

namespace {

// The reason why there cannot be such a clone.
std::optional<std::string> clone_error(const CreateExport& clone,
                                       const config::ExportOptions& source) {
    if (clone.options.keep && !source.keep) {
        return fmt::format("export {} has no keep, so its clone cannot have it",
                           config::in_quotes(source.name));
    }
    if (!clone.persist) return {};
    if (!source.keep) {
        return "a snapshot or clone can only be persistent if its contents are kept; its source "
               "has no keep";
    }
    if (source.provenance.run_time && !source.provenance.persistent) {
        return fmt::format("export {} is not persistent, so its snapshot or clone cannot be",
                           config::in_quotes(source.name));
    }
    return {};
}

// The reason why these options would have no effect.
std::optional<std::string> without_effect(const config::ExportOptions& options, bool supervised) {
    if (options.keep && !supervised) {
        return "no supervisor keeps contents for this server; leave keep out, or start the server "
               "by gpunbd keep, or by systemd with FileDescriptorStoreMax=";
    }
    const bool stripe = options.layout == config::LayoutKind::stripe;
    if (stripe && options.clone_of.empty() && options.devices.size() < 2) {
        return "layout: stripe needs two or more devices; name them, or leave layout out";
    }
    return {};
}

// The name of the first export that makes clones of this one for clients.
std::optional<std::string> template_of(const config::Options& options, const std::string& name) {
    for (const config::ExportOptions& each : options.exports) {
        if (each.is_template() && each.clone_per_client.of == name) {
            return config::in_quotes(each.name);
        }
    }
    return {};
}

// The options of the export with this name and use. end(): it was renamed or removed while the
// change waited.
auto find_served(const config::Options& options, const ExportRegistry& exports,
                 const std::string& name, const std::shared_ptr<ExportUse>& use) {
    const auto served = exports.find(name);
    return served && served->use == use ? find_export(options, name) : options.exports.end();
}

// The reason why this export cannot have another name.
std::optional<std::string> why_name_is_fixed(const config::Options& options,
                                             const config::ExportOptions& exported) {
    const std::string name = config::in_quotes(exported.name);
    if (!exported.provenance.run_time) {
        return fmt::format(
            "export {} is in the configuration of the server; rename it there, and reload, which "
            "creates a new, empty export",
            name);
    }
    if (exported.is_template()) {
        return fmt::format(
            "export {} has no contents, and its clients find their clones by its name; create "
            "another one, and remove this one",
            name);
    }
    if (!exported.provenance.made_by.empty()) {
        return fmt::format(
            "export {} is the clone of a client, which finds it by its name; copy it by gpunbd "
            "export clone",
            name);
    }
    if (auto user = template_of(options, exported.name)) {
        return fmt::format("export {} makes clones of it; remove that one first", *user);
    }
    const auto is_of_it = [&](const config::ExportOptions& each) {
        return each.clone_of == exported.name;
    };
    const auto first = std::ranges::find_if(options.exports, is_of_it);
    if (first == options.exports.end()) return {};
    const auto count = std::ranges::count_if(options.exports, is_of_it);
    const std::string its_name = config::in_quotes(first->name);
    if (count == 1) {
        return fmt::format("export {} is a snapshot or clone of it; remove that one first",
                           its_name);
    }
    return fmt::format("{} exports are snapshots or clones of it, such as {}; remove those first",
                       count, its_name);
}

std::string name_is_taken(const std::string& name) {
    return fmt::format("there is an export {} already; choose another name",
                       config::in_quotes(name));
}

// The size that an export gets from the file of its key `restore`; with a size of its own, whether
// that has room for the file.
Expected<config::Size> size_of_restored(const config::ExportOptions& wanted) {
    const auto size = storage::image_size(wanted.restore);
    if (const auto* const why = std::get_if<std::string>(&size)) return *why;
    const std::uint64_t bytes = std::get<std::uint64_t>(size);
    if (!wanted.size) {
        if (bytes % config::rules::sector == 0) return config::Size{.bytes = bytes};
        return fmt::format(
            "{} has {} bytes, which is not a multiple of {}; give the export a larger size",
            wanted.restore, bytes, config::rules::sector);
    }
    if (wanted.size->percent == 0 && wanted.size->bytes < bytes) {
        return storage::larger_image_error(wanted.restore, bytes, wanted.size->bytes);
    }
    return *wanted.size;
}

// As the next server has them.
config::ExportOptions stored_options(config::ExportOptions options) {
    if (options.provenance.made_read_only) options.read_only = false;
    return options;
}

}  // namespace

std::string unknown(const std::string& name) {
    return fmt::format("there is no export {}; gpunbd export list lists them",
                       config::in_quotes(name));
}

Expected<config::ExportOptions, NotDone> wanted_export(const ServerContext& context,
                                                       const CreateExport& request,
                                                       bool has_state) {
    if (request.persist && !has_state) {
        return NotDone{
            "the server has no folder for persistent exports; start it with --state DIR, or "
            "add state: DIR to its configuration"};
    }
    config::ExportOptions wanted = request.options;
    if (!wanted.clone_of.empty()) {
        const std::shared_ptr<const Export> source = context.exports.find(wanted.clone_of);
        if (!source) return NotDone{.why = unknown(wanted.clone_of), .unknown = true};
        if (auto why = clone_error(request, source->options)) return NotDone{*std::move(why)};
        if (std::string why = source->why_incomplete(); !why.empty()) return NotDone{why};
        wanted.keep = source->options.keep;
    }
    if (auto why = without_effect(request.options, context.kept.contents != nullptr)) {
        return NotDone{*std::move(why)};
    }
    if (!wanted.restore.empty()) {  // also with a size: earlier contents are freed for the file
        const Expected<config::Size> size = size_of_restored(wanted);
        if (!size) return NotDone{size.error()};
        wanted.size = *size;
    }
    wanted.provenance = {
        .run_time = true, .persistent = request.persist, .created = std::time(nullptr)};
    return wanted;
}

Expected<void> add_export(config::Options& options, const config::ExportOptions& wanted) {
    if (find_export(options, wanted.name) != options.exports.end()) {
        return name_is_taken(wanted.name);
    }
    if (options.exports.size() >= config::rules::max_exports) {
        return fmt::format("the server has {} exports, which is its limit", options.exports.size());
    }
    options.exports.push_back(wanted);
    return {};
}

Expected<Removal, NotDone> removal_of(const ServerContext& context, const RemoveExport& request) {
    const std::string name = config::in_quotes(request.name);
    const std::shared_ptr<const Export> served = context.exports.find(request.name);
    const auto wanted = find_export(context.options, request.name);
    const bool is_template = wanted != context.options.exports.end() && wanted->is_template();
    if (!served && !is_template) return NotDone{.why = unknown(request.name), .unknown = true};
    if (is_template || !served->options.provenance.run_time) {
        return NotDone{fmt::format(
            "export {} is in the configuration of the server; remove it there, and reload", name)};
    }
    const bool remain = request.keep_contents && served->contents_outlive_server();
    if (request.keep_contents && !remain) {
        return NotDone{fmt::format(
            "the contents of export {} are not kept, so they end with it; leave --keep-contents "
            "out, or save them by gpunbd export save",
            name)};
    }
    return Removal{.options = served->options, .use = served->use, .contents_remain = remain};
}

Expected<void> take_out(config::Options& options, const ExportRegistry& exports,
                        const RemoveExport& request, Removal& removal) {
    const auto found = find_served(options, exports, request.name, removal.use);
    if (found == options.exports.end()) return is_gone;
    if (auto user = template_of(options, request.name)) {
        return fmt::format("export {} makes clones of it; remove that one first", *user);
    }
    removal.closed = removal.use->close("the export is being removed", request.force);
    if (!removal.closed.closure) {
        const std::uint32_t clients = removal.closed.connections;
        return removal.closed.why_not + (clients == 0   ? ""
                                         : clients == 1 ? "; --force disconnects it"
                                                        : "; --force disconnects them");
    }
    options.exports.erase(found);
    return {};
}

Expected<Resizing> set_size(config::Options& options, const ExportRegistry& exports,
                            const Export& served, const ResizeExport& request) {
    const auto found = find_served(options, exports, request.name, served.use);
    if (found == options.exports.end()) return is_gone;
    if (found->is_snapshot()) {
        return "it is a snapshot, and has a fixed size; resize a clone of it";
    }
    Resizing resizing;
    const auto& size = found->provenance.resized ? found->provenance.configured_size : found->size;
    if (size && size->percent == 0) resizing.configured = size->bytes;
    config::ExportOptions& edited = options.exports.edit(found);
    if (!edited.provenance.run_time && !edited.provenance.resized) {
        edited.provenance.resized = true;
        edited.provenance.configured_size = edited.size;
    }
    edited.size = config::Size{.bytes = request.size};
    resizing.stored = stored_options(edited);
    if (auto error = config::rules::size_error(edited, "block_size.minimum")) {
        return *std::move(error);
    }
    return resizing;
}

std::optional<NotDone> refusal_of_renaming(const ServerContext& context,
                                           const RenameExport& request) {
    const auto wanted = find_export(context.options, request.name);
    if (wanted == context.options.exports.end() ||
        (!context.exports.find(request.name) && !wanted->is_template())) {
        return NotDone{.why = unknown(request.name), .unknown = true};
    }
    if (request.name == request.new_name) {
        return NotDone{fmt::format("export {} has this name already; choose another one",
                                   config::in_quotes(request.name))};
    }
    auto why = why_name_is_fixed(context.options, *wanted);
    if (!why) return std::nullopt;
    return NotDone{*std::move(why)};
}

Expected<Renamed> set_name(config::Options& options, const ExportRegistry& exports,
                           const Export& served, const RenameExport& request) {
    const auto found = find_served(options, exports, request.name, served.use);
    if (found == options.exports.end()) return is_gone;
    std::string why = why_name_is_fixed(options, *found).value_or("");
    if (why.empty()) why = served.why_incomplete();
    if (why.empty()) why = served.use->why_closed();
    if (!why.empty()) return why;
    if (find_export(options, request.new_name) != options.exports.end()) {
        return name_is_taken(request.new_name);
    }
    config::ExportOptions from = stored_options(*found);
    config::ExportOptions& renamed = options.exports.edit(found);
    renamed.name = request.new_name;
    renamed.provenance.renamed_contents = served.info.instance;
    return Renamed{.from = std::move(from), .to = stored_options(renamed)};
}

}  // namespace gpunbd::server
