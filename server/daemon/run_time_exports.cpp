#include "server/daemon/run_time_exports.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <ctime>
#include <memory>
#include <utility>

#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/size.hpp"
#include "storage/images/restore_image.hpp"

namespace gpunbd::server {

namespace {

auto find_export(const config::Options& options, const std::string& name) {
    return std::ranges::find(options.exports, name, &config::ExportOptions::name);
}

std::string unknown(const std::string& name) {
    return fmt::format("there is no export {}; gpunbd export list lists them",
                       config::in_quotes(name));
}

// The reason why there cannot be such a clone; empty: none.
std::string clone_misfit(const CreateExport& clone, const config::ExportOptions& source) {
    if (clone.options.keep && !source.keep) {
        return fmt::format("export {} has no keep, so its clone cannot have it",
                           config::in_quotes(source.name));
    }
    if (!clone.persist) return {};
    if (!source.keep) {
        return "a snapshot or clone can only be persistent if its contents are kept; its source "
               "has no keep";
    }
    if (source.origin.run_time && !source.origin.persistent) {
        return fmt::format("export {} is not persistent, so its snapshot or clone cannot be",
                           config::in_quotes(source.name));
    }
    return {};
}

// The reason why these options would have no effect; empty: they have one.
std::string without_effect(const config::ExportOptions& options, bool supervised) {
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

// The name of the first export that makes clones of this one for clients; empty: there is none.
std::string template_of(const config::Options& options, const std::string& name) {
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

constexpr const char* is_gone = "the export does not exist any more";

// The reason why this export cannot have another name; empty: it can.
std::string why_name_is_fixed(const config::Options& options,
                              const config::ExportOptions& exported) {
    const std::string name = config::in_quotes(exported.name);
    if (!exported.origin.run_time) {
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
    if (!exported.origin.made_by.empty()) {
        return fmt::format(
            "export {} is the clone of a client, which finds it by its name; copy it by gpunbd "
            "export clone",
            name);
    }
    if (std::string user = template_of(options, exported.name); !user.empty()) {
        return fmt::format("export {} makes clones of it; remove that one first", user);
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

// As the next server has them.
config::ExportOptions stored_options(config::ExportOptions options) {
    if (options.origin.made_read_only) options.read_only = false;
    return options;
}

// Completes an operation with `done`, or with the reason why it failed.
ServerAdminBackend::ChangeDone completing(const Completion& completion, std::string done) {
    return [completion, done = std::move(done)](const std::string& why_not) {
        completion(why_not.empty() ? Outcome(Done{done}) : Outcome(NotDone{why_not}));
    };
}

}  // namespace

RunTimeExports::RunTimeExports(ServerContext& context, ExportService& exports, Saves& saves)
    : context_(context),
      exports_(exports),
      saves_(saves),
      state_(context.options.state.empty() ? std::nullopt
                                           : std::optional(StateFolder(context.options.state))) {
    exports.set_restore(
        [&saves](const std::shared_ptr<const Export>& made, ExportService::RestoreDone done) {
            saves.restore_new(made, std::move(done));
        });
}

void RunTimeExports::change(const ExportChange& change, const Completion& completion) {
    std::visit([&](const auto& each) { apply(each, completion); }, change);
}

std::string RunTimeExports::store(const config::ExportOptions& options) const {
    if (options.origin.persistent) return state_->write(options);
    if (!options.origin.run_time) return {};
    // The next server has no contents that it could clone.
    if (!options.clone_of.empty() && !options.keep) return {};
    return context_.retained.keep(options);
}

std::string RunTimeExports::unstore(const config::ExportOptions& options) const {
    if (options.origin.persistent) return state_->remove(options.name);
    if (context_.retained.exports) context_.retained.exports->forget(options.name);
    return {};
}

std::string RunTimeExports::store_renamed(const config::ExportOptions& from,
                                          const config::ExportOptions& to) const {
    if (to.origin.persistent) return state_->rename(from, to);
    if (!context_.retained.exports || (!to.clone_of.empty() && !to.keep)) return {};
    return context_.retained.exports->rename(from.name, to);
}

void RunTimeExports::forget(const std::weak_ptr<storage::Volume>& removed) const {
    RetainedContents* const contents = context_.retained.contents.get();
    const auto volume = removed.lock();
    if (contents != nullptr && volume) contents->forget(*volume);
}

void RunTimeExports::apply(const CreateExport& create, const Completion& completion) {
    if (create.persist && !state_) {
        return completion(NotDone{
            "the server has no folder for persistent exports; start it with --state DIR, or "
            "add state: DIR to its configuration"});
    }
    config::ExportOptions wanted = create.options;
    if (!wanted.clone_of.empty()) {
        const std::shared_ptr<const Export> source = context_.exports.find(wanted.clone_of);
        if (!source) {
            return completion(NotDone{.why = unknown(wanted.clone_of), .unknown = true});
        }
        std::string why = clone_misfit(create, source->options);
        if (why.empty()) why = source->why_incomplete();
        if (!why.empty()) return completion(NotDone{why});
        wanted.keep = source->options.keep;
    }
    if (std::string why = without_effect(create.options, context_.retained.contents != nullptr);
        !why.empty()) {
        return completion(NotDone{std::move(why)});
    }
    if (!wanted.restore.empty()) {  // also with a size: earlier contents are freed for the file
        const auto size = storage::image_size(wanted.restore);
        if (const auto* const why = std::get_if<std::string>(&size)) {
            return completion(NotDone{*why});
        }
        const std::uint64_t bytes = std::get<std::uint64_t>(size);
        if (!wanted.size && bytes % config::rules::sector != 0) {
            return completion(NotDone{fmt::format(
                "{} has {} bytes, which is not a multiple of {}; give the export a larger size",
                wanted.restore, bytes, config::rules::sector)});
        }
        if (!wanted.size) wanted.size = config::Size{.bytes = bytes};
        if (wanted.size->percent == 0 && wanted.size->bytes < bytes) {
            return completion(
                NotDone{storage::larger_image_error(wanted.restore, bytes, wanted.size->bytes)});
        }
    }
    wanted.origin = {.run_time = true, .persistent = create.persist, .created = std::time(nullptr)};
    const std::string name = config::in_quotes(wanted.name);
    const bool by_address =
        wanted.is_template() && wanted.clone_per_client.name == config::ClientId::address;
    std::string done =
        fmt::format("Export {} is created.{}", name,
                    by_address && context_.options.tcp.empty()
                        ? " It has a clone for each IP address, so only clients by TCP can open it."
                        : "");
    exports_.edit({.change = [wanted](config::Options& options) -> std::string {
                       if (find_export(options, wanted.name) != options.exports.end()) {
                           return name_is_taken(wanted.name);
                       }
                       if (options.exports.size() >= config::rules::max_exports) {
                           return fmt::format("the server has {} exports, which is its limit",
                                              options.exports.size());
                       }
                       options.exports.push_back(wanted);
                       return {};
                   },
                   .adds = true,
                   .store = [this, wanted] { return store(wanted); },
                   .restores = wanted.restore.empty() ? "" : wanted.name,
                   .done = completing(completion, std::move(done))});
}

void RunTimeExports::apply(const RemoveExport& remove, const Completion& completion) {
    const std::string name = config::in_quotes(remove.name);
    const auto wanted = find_export(context_.options, remove.name);
    const bool is_template = wanted != context_.options.exports.end() && wanted->is_template();
    if (is_template && wanted->origin.run_time) return remove_template(*wanted, completion);
    const std::shared_ptr<const Export> served = context_.exports.find(remove.name);
    if (!served && !is_template) {
        return completion(NotDone{.why = unknown(remove.name), .unknown = true});
    }
    if (is_template || !served->options.origin.run_time) {
        return completion(NotDone{fmt::format(
            "export {} is in the configuration of the server; remove it there, and reload", name)});
    }
    const bool remains = remove.keep_contents && served->contents_outlive_server();
    if (remove.keep_contents && !remains) {
        return completion(NotDone{fmt::format(
            "the contents of export {} are not kept, so they end with it; leave --keep-contents "
            "out, or save them by gpunbd export save",
            name)});
    }
    std::string done = fmt::format(
        "Export {} is removed.{}", name,
        remains ? fmt::format(" Its contents are kept for {} s; gpunbd kept --drop frees them now.",
                              context_.options.keeping.grace.count())
                : "");
    // The callbacks must not hold a reference to the export: each reference keeps its memory, and
    // the log counts it as a client.
    const auto closed = std::make_shared<ExportUse::Closed>();
    exports_.edit(
        {.change = [&registry = context_.exports, its_name = remove.name, use = served->use, closed,
                    force = remove.force](config::Options& options) -> std::string {
             const auto found = find_served(options, registry, its_name, use);
             if (found == options.exports.end()) return is_gone;
             if (std::string user = template_of(options, its_name); !user.empty()) {
                 return fmt::format("export {} makes clones of it; remove that one first", user);
             }
             *closed = use->close("the export is being removed", force);
             if (!closed->closure) {
                 const std::uint32_t clients = closed->connections;
                 return closed->why_not + (clients == 0   ? ""
                                           : clients == 1 ? "; --force disconnects it"
                                                          : "; --force disconnects them");
             }
             options.exports.erase(found);
             return {};
         },
         .store = [this, options = served->options, remains,
                   volume = std::weak_ptr(served->volume)]() -> std::string {
             std::string why = unstore(options);
             if (why.empty() && !remains) forget(volume);
             return why;
         },
         .done =
             [closed,
              completing = completing(completion, std::move(done))](const std::string& why_not) {
                 if (why_not.empty() && closed->closure) closed->closure->make_final();
                 closed->closure.reset();
                 completing(why_not);
             }});
}

// Its clones stay.
void RunTimeExports::remove_template(const config::ExportOptions& removed,
                                     const Completion& completion) {
    exports_.edit(
        {.change = [name = removed.name](config::Options& options) -> std::string {
             const auto found = find_export(options, name);
             if (found == options.exports.end()) return is_gone;
             options.exports.erase(found);
             return {};
         },
         .store = [this, removed] { return unstore(removed); },
         .done = completing(completion, fmt::format("Export {} is removed. Its clones stay.",
                                                    config::in_quotes(removed.name)))});
}

void RunTimeExports::apply(const ResizeExport& resize, const Completion& completion) {
    const std::shared_ptr<const Export> served = context_.exports.find(resize.name);
    if (!served) return completion(NotDone{.why = unknown(resize.name), .unknown = true});
    if (std::string why = served->why_incomplete(); !why.empty()) return completion(NotDone{why});
    const std::string name = config::in_quotes(resize.name);
    const auto resized = std::make_shared<config::ExportOptions>();
    // The size with which the next server looks for kept contents, unless the new one is stored.
    const auto configured = std::make_shared<std::uint64_t>(0);
    exports_.edit(
        {.change = [&registry = context_.exports, served, resize, resized,
                    configured](config::Options& options) -> std::string {
             const auto found = find_served(options, registry, resize.name, served->use);
             if (found == options.exports.end()) return is_gone;
             if (found->is_snapshot()) {
                 return "it is a snapshot, and has a fixed size; resize a clone of it";
             }
             const auto& size = found->origin.resized ? found->origin.configured_size : found->size;
             if (size && size->percent == 0) *configured = size->bytes;
             config::ExportOptions& edited = options.exports.edit(found);
             if (!edited.origin.run_time && !edited.origin.resized) {
                 edited.origin.resized = true;
                 edited.origin.configured_size = edited.size;
             }
             edited.size = config::Size{.bytes = resize.size};
             *resized = stored_options(edited);
             return config::rules::size_misfit(edited, "block_size.minimum").value_or("");
         },
         .begin = [served, resize, name, configured](const std::stop_token& stop) -> std::string {
             storage::Volume& volume = *served->volume;
             if (!resize.discard && !volume.is_hole_from(resize.size)) {
                 return fmt::format("export {} has data beyond that size; --discard drops it",
                                    name);
             }
             const std::string why = volume.resize(resize.size, stop, *configured);
             if (why.empty()) served->use->require_current_size(resize.reconnect);
             return why.empty() ? std::string() : fmt::format("export {}: {}", name, why);
         },
         .store = [this, resized, resize, name]() -> std::string {
             const std::string why = store(*resized);
             if (why.empty()) return {};
             return fmt::format(
                 "export {} has {} now, but this is not stored for the next server: {}", name,
                 config::human_size(resize.size), why);
         },
         .begin_is_final = true,
         .done = completing(
             completion,
             fmt::format("Export {} has {} now; clients see it when they connect again.{}", name,
                         config::human_size(resize.size),
                         served->options.origin.run_time
                             ? ""
                             : " Set this size in the configuration as well."))});
}

void RunTimeExports::apply(const RenameExport& rename, const Completion& completion) {
    const auto& [name, new_name] = rename;
    const auto wanted = find_export(context_.options, name);
    const std::shared_ptr<const Export> served = context_.exports.find(name);
    if (wanted == context_.options.exports.end() || (!served && !wanted->is_template())) {
        return completion(NotDone{.why = unknown(name), .unknown = true});
    }
    if (name == new_name) {
        return completion(NotDone{fmt::format("export {} has this name already; choose another one",
                                              config::in_quotes(name))});
    }
    if (std::string why = why_name_is_fixed(context_.options, *wanted); !why.empty()) {
        return completion(NotDone{std::move(why)});
    }
    struct Options {
        config::ExportOptions from;
        config::ExportOptions to;
    };
    const auto stored = std::make_shared<Options>();
    RetainedContents* const contents = context_.retained.contents.get();
    exports_.edit({.change = [&registry = context_.exports, served, stored,
                              rename](config::Options& options) -> std::string {
                       const auto found = find_served(options, registry, rename.name, served->use);
                       if (found == options.exports.end()) return is_gone;
                       std::string why = why_name_is_fixed(options, *found);
                       if (why.empty()) why = served->why_incomplete();
                       if (why.empty()) why = served->use->why_closed();
                       if (!why.empty()) return why;
                       if (find_export(options, rename.new_name) != options.exports.end()) {
                           return name_is_taken(rename.new_name);
                       }
                       stored->from = stored_options(*found);
                       config::ExportOptions& renamed = options.exports.edit(found);
                       renamed.name = rename.new_name;
                       renamed.origin.renamed_contents = served->info.instance;
                       stored->to = stored_options(renamed);
                       return {};
                   },
                   .adds = true,
                   .begin = [contents, served, rename](const std::stop_token&) -> std::string {
                       if (contents == nullptr) return {};
                       return contents->prepare_rename(*served->volume, rename.new_name);
                   },
                   // In this order: the options have the id of the contents, and not the reverse.
                   .store = [this, contents, served, stored]() -> std::string {
                       std::string why = store_renamed(stored->from, stored->to);
                       if (!why.empty()) return why;
                       if (contents != nullptr) {
                           contents->rename(*served->volume, stored->to.name);
                       } else {
                           served->volume->set_name(stored->to.name);
                       }
                       return {};
                   },
                   .renames = Renaming{.from = name, .to = new_name},
                   .done = completing(completion, fmt::format("Export {} has the name {} now.",
                                                              config::in_quotes(name),
                                                              config::in_quotes(new_name)))});
}

void RunTimeExports::apply(const SaveExport& save, const Completion& completion) {
    const std::shared_ptr<const Export> served = context_.exports.find(save.name);
    if (!served) return completion(NotDone{.why = unknown(save.name), .unknown = true});
    if (std::string why = served->why_incomplete(); !why.empty()) return completion(NotDone{why});
    saves_.save(served, save.file, {.zstd = save.zstd, .threads = save.threads}, completion);
}

void RunTimeExports::apply(const RestoreExport& restore, const Completion& completion) {
    const std::shared_ptr<const Export> served = context_.exports.find(restore.create.options.name);
    if (!served) {
        CreateExport create = restore.create;
        create.options.restore = restore.file;
        return apply(create, completion);
    }
    if (!restore.only_name) {
        return completion(NotDone{fmt::format(
            "there is an export {} already, so its keys cannot be given; choose another name, or "
            "leave them out",
            config::in_quotes(served->info.name))});
    }
    if (std::string why = served->why_incomplete(); !why.empty()) return completion(NotDone{why});
    // A reload may have left out clones of it meanwhile.
    const auto remake = [&context = context_, &exports = exports_] {
        boost::asio::post(context.io, [&context, &exports] {
            if (context.lifecycle.refuses_changes() || exports.refused().empty()) return;
            exports.remake();
        });
    };
    saves_.restore(served, restore.file, Completion([completion, remake](Outcome outcome) {
                       completion(std::move(outcome));
                       remake();
                   }));
}

}  // namespace gpunbd::server
