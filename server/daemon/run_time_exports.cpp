#include "server/daemon/run_time_exports.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/daemon/export_requests.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

std::string text_of_creation(const config::ExportOptions& wanted, const config::Options& options) {
    const bool by_address =
        wanted.is_template() && wanted.clone_per_client.name == config::ClientId::address;
    return fmt::format("Export {} is created.{}", config::in_quotes(wanted.name),
                       by_address && options.tcp.empty()
                           ? " It has a clone for each IP address, so only clients by TCP can open "
                             "it."
                           : "");
}

// The new export of this name that has to be restored. end(): there is none.
auto find_unfilled(MadeExports& made, const std::string& name) {
    return std::ranges::find_if(made.unfilled,
                                [&](const auto& each) { return each.exported->info.name == name; });
}

// Takes the new export that the caller has to restore out of those that were made.
std::optional<MadeExports::Unfilled> take_unfilled(MadeExports& made, const std::string& name) {
    const auto found = find_unfilled(made, name);
    if (found == made.unfilled.end()) return std::nullopt;
    MadeExports::Unfilled taken = std::move(*found);
    made.unfilled.erase(found);
    return taken;
}

Expected<void> resize_volume(const Export& served, const ResizeExport& request,
                             std::uint64_t configured, const std::stop_token& stop) {
    storage::Volume& volume = *served.volume;
    const std::string name = config::in_quotes(request.name);
    if (!request.discard && !volume.is_hole_from(request.size)) {
        return fmt::format("export {} has data beyond that size; --discard drops it", name);
    }
    const std::string why = volume.resize(request.size, stop, configured);
    if (!why.empty()) return fmt::format("export {}: {}", name, why);
    served.use->require_current_size(request.reconnect);
    return {};
}

Expected<std::shared_ptr<const Export>, NotDone> find_with_origin(const ServerContext& context,
                                                                  const std::string& name) {
    std::shared_ptr<const Export> served = context.exports.find(name);
    if (!served) return NotDone{.why = unknown(name), .unknown = true};
    if (served->volume->cache() == nullptr) {
        return NotDone{fmt::format("export {} has no origin", config::in_quotes(name))};
    }
    if (context.lifecycle.refuses_changes()) {
        return std::get<NotDone>(context.lifecycle.refusal());
    }
    return served;
}

// `text`: of a success.
Outcome outcome_of(const Expected<void>& done, std::string text) {
    return done ? Outcome(Done{std::move(text)}) : Outcome(NotDone{done.error()});
}

}  // namespace

RunTimeExports::RunTimeExports(ServerContext& context, ExportService& exports, Saves& saves)
    : context_(context),
      exports_(exports),
      saves_(saves),
      state_(context.options.state.empty() ? std::nullopt
                                           : std::optional(StateFolder(context.options.state))),
      tasks_(context.io) {}

void RunTimeExports::perform(const ExportRequest& request, const Completion& completion) {
    struct Start {
        Task<> operator()(const CreateExport& its) const { return self.create(its, answer); }
        Task<> operator()(const RemoveExport& its) const { return self.remove(its, answer); }
        Task<> operator()(const ResizeExport& its) const { return self.resize(its, answer); }
        Task<> operator()(const RenameExport& its) const { return self.rename(its, answer); }
        Task<> operator()(const SaveExport& its) const { return self.save(its, answer); }
        Task<> operator()(const RestoreExport& its) const { return self.restore(its, answer); }
        Task<> operator()(const FlushExport& its) const { return self.flush(its, answer); }
        Task<> operator()(const EvictExport& its) const { return self.evict(its, answer); }
        Task<> operator()(const SetRates& its) const { return self.set_rates(its, answer); }
        Task<> operator()(const SetReadOnly& its) const { return self.set_read_only(its, answer); }
        RunTimeExports& self;
        const Completion& answer;
    };
    tasks_.start(std::visit(Start{*this, completion}, request));
}

Expected<void> RunTimeExports::store(const config::ExportOptions& options) const {
    if (options.provenance.persistent) return state_->write(options);
    if (!options.provenance.run_time) return {};
    // The next server has no contents that it could clone.
    if (!options.clone_of.empty() && !options.keep) return {};
    return context_.kept.keep(options);
}

Expected<void> RunTimeExports::unstore(const config::ExportOptions& options) const {
    if (options.provenance.persistent) return state_->remove(options.name);
    if (context_.kept.exports) context_.kept.exports->drop(options.name);
    return {};
}

Expected<void> RunTimeExports::store_renamed(const config::ExportOptions& from,
                                             const config::ExportOptions& to) const {
    if (to.provenance.persistent) return state_->rename(from, to);
    if (!context_.kept.exports || (!to.clone_of.empty() && !to.keep)) return {};
    return context_.kept.exports->rename(from.name, to);
}

void RunTimeExports::drop(const ExportEdit& edit, const std::string& name) const {
    KeptContents* const contents = context_.kept.contents.get();
    const auto* const removed = ExportLookup(*edit.before).find(name);
    GPUNBD_ASSERT(removed != nullptr, "an export that is removed was offered before");
    if (contents != nullptr) contents->drop(*(*removed)->volume);
}

Task<> RunTimeExports::create(CreateExport request, Completion completion) {
    const auto wanted = wanted_export(context_, request, state_.has_value());
    if (!wanted) co_return completion(wanted.error());
    auto edit = co_await exports_.begin();
    Expected<void> done = edit ? add_export(edit->options, *wanted) : edit.error();
    if (done) done = exports_.check(*edit, ExportService::Names::are_new);
    const ExportService::Store store = [&] { return this->store(*wanted); };
    const bool restores = !wanted->restore.empty();
    const ExportService::Work work = [&](const std::stop_token& stop) {
        Expected<void> made = exports_.make_exports(*edit, stop);
        // Otherwise it is stored when it is complete.
        MadeExports& all = edit->made;
        if (made && !(restores && find_unfilled(all, wanted->name) != all.unfilled.end())) {
            exports_.drop_earlier(*edit);
            made = store();
        }
        return made;
    };
    if (done) done = co_await exports_.make(*edit, work);
    if (!done) co_return completion(NotDone{done.error()});
    std::optional<MadeExports::Unfilled> unfilled;
    if (restores) unfilled = take_unfilled(edit->made, wanted->name);
    ExportService::Published sessions = exports_.publish(*edit);
    if (unfilled) {
        done = co_await exports_.restore(*std::move(unfilled), store);
    } else {
        co_await sessions;
    }
    completion(outcome_of(done, text_of_creation(*wanted, context_.options)));
}

Task<> RunTimeExports::remove(RemoveExport request, Completion completion) {
    const auto named = find_export(context_.options, request.name);
    if (named != context_.options.exports.end() && named->is_template() &&
        named->provenance.run_time) {
        co_await remove_template(*named, completion);
        co_return;
    }
    auto removal = removal_of(context_, request);
    if (!removal) co_return completion(removal.error());
    auto edit = co_await exports_.begin();
    Expected<void> done =
        edit ? take_out(edit->options, context_.exports, request, *removal) : edit.error();
    if (done) done = exports_.check(*edit);
    const ExportService::Work work = [&](const std::stop_token& stop) {
        Expected<void> made = exports_.make_exports(*edit, stop);
        if (made) made = unstore(removal->options);
        if (made && !removal->contents_remain) drop(*edit, request.name);
        return made;
    };
    if (done) done = co_await exports_.make_and_publish(*edit, work);
    auto& closure = removal->closed.closure;
    if (done && closure) closure->make_final();
    closure.reset();
    completion(outcome_of(
        done, fmt::format("Export {} is removed.{}", config::in_quotes(request.name),
                          removal->contents_remain
                              ? fmt::format(" Its contents are kept for {} s; gpunbd kept --drop "
                                            "frees them now.",
                                            context_.options.keeping.grace.count())
                              : "")));
}

// Its clones stay.
Task<> RunTimeExports::remove_template(config::ExportOptions removed, Completion completion) {
    auto edit = co_await exports_.begin();
    if (!edit) co_return completion(NotDone{edit.error()});
    const auto found = find_export(edit->options, removed.name);
    if (found == edit->options.exports.end()) co_return completion(NotDone{is_gone});
    edit->options.exports.erase(found);
    Expected<void> done = exports_.check(*edit);
    const ExportService::Work work = [&](const std::stop_token& stop) {
        Expected<void> made = exports_.make_exports(*edit, stop);
        return made ? unstore(removed) : made;
    };
    if (done) done = co_await exports_.make_and_publish(*edit, work);
    completion(outcome_of(done, fmt::format("Export {} is removed. Its clones stay.",
                                            config::in_quotes(removed.name))));
}

Task<> RunTimeExports::resize(ResizeExport request, Completion completion) {
    const std::shared_ptr<const Export> served = context_.exports.find(request.name);
    if (!served) co_return completion(NotDone{.why = unknown(request.name), .unknown = true});
    if (std::string why = served->why_incomplete(); !why.empty()) {
        co_return completion(NotDone{why});
    }
    auto edit = co_await exports_.begin();
    Expected<Resizing> resizing =
        edit ? set_size(edit->options, context_.exports, *served, request) : edit.error();
    if (!resizing) co_return completion(NotDone{resizing.error()});
    Expected<void> done = exports_.check(*edit);
    const std::string name = config::in_quotes(request.name);
    Expected<void> stored;
    const ExportService::Work work = [&](const std::stop_token& stop) {
        Expected<void> made = resize_volume(*served, request, resizing->configured, stop);
        if (made) made = exports_.make_exports(*edit, stop);
        if (made) stored = store(resizing->stored);
        return made;
    };
    if (done) done = co_await exports_.make(*edit, work);
    if (!done) co_return completion(NotDone{done.error()});
    ExportService::Published sessions = exports_.publish(*edit);
    const std::string size = config::human_size(request.size);
    if (!stored) {  // the volume has the new size
        done = fmt::format("export {} has {} now, but this is not stored for the next server: {}",
                           name, size, stored.error());
        spdlog::error("{}", done.error());
    }
    co_await sessions;
    completion(outcome_of(
        done,
        fmt::format("Export {} has {} now; clients see it when they connect again.{}", name, size,
                    served->options.provenance.run_time
                        ? ""
                        : " Set this size in the configuration as well.")));
}

Task<> RunTimeExports::flush(FlushExport request, Completion completion) {
    const auto served = find_with_origin(context_, request.name);
    if (!served) co_return completion(served.error());
    const Work work = [&]() -> Outcome {
        const std::string name = config::in_quotes(request.name);
        if ((*served)->volume->cache()->flush_now() == storage::Status::ok) {
            return Done{fmt::format("The origin of export {} has all that was written.", name)};
        }
        return NotDone{fmt::format("export {}: its origin cannot be flushed; see the log", name)};
    };
    completion(co_await on_thread(work));
}

Task<> RunTimeExports::evict(EvictExport request, Completion completion) {
    const auto served = find_with_origin(context_, request.name);
    if (!served) co_return completion(served.error());
    const Work work = [&]() -> Outcome {
        const storage::Volume& volume = *(*served)->volume;
        const std::uint64_t page = volume.page_size();
        const std::uint64_t dropped =
            page * volume.cache()->evict((request.size + page - 1) / page);
        return Done{fmt::format("Export {}: {} are dropped from memory.",
                                config::in_quotes(request.name), config::human_size(dropped))};
    };
    completion(co_await on_thread(work));
}

Task<Outcome> RunTimeExports::on_thread(const Work& work) {
    Outcome outcome;
    const OnThread::Work call = [&](const std::stop_token&) { outcome = work(); };
    try {
        OnThread thread(context_.io, "origins", {}, call);
        co_await thread;
    } catch (const std::exception& error) {
        outcome = NotDone{error.what()};
    }
    co_return outcome;
}

Task<> RunTimeExports::rename(RenameExport request, Completion completion) {
    if (auto refusal = refusal_of_renaming(context_, request)) {
        co_return completion(*std::move(refusal));
    }
    const std::string& new_name = request.new_name;
    const std::shared_ptr<const Export> served = context_.exports.find(request.name);
    GPUNBD_ASSERT(served != nullptr, "only an export that is offered gets another name");
    auto edit = co_await exports_.begin();
    Expected<Renamed> renamed =
        edit ? set_name(edit->options, context_.exports, *served, request) : edit.error();
    if (!renamed) co_return completion(NotDone{renamed.error()});
    edit->renaming = Renaming{.from = request.name, .to = new_name};
    Expected<void> done = exports_.check(*edit, ExportService::Names::are_new);
    KeptContents* const contents = context_.kept.contents.get();
    const ExportService::Work work = [&](const std::stop_token& stop) {
        Expected<void> made;
        if (contents != nullptr) made = contents->prepare_rename(*served->volume, new_name);
        if (made) made = exports_.make_exports(*edit, stop);
        // In this order: the options have the id of the contents, and not the reverse.
        if (made) made = store_renamed(renamed->from, renamed->to);
        if (!made) return made;
        if (contents != nullptr) {
            contents->rename(*served->volume, new_name);
        } else {
            served->volume->set_name(new_name);
        }
        return made;
    };
    if (done) done = co_await exports_.make_and_publish(*edit, work);
    completion(outcome_of(
        done, fmt::format("Export {} has the name {} now.", config::in_quotes(request.name),
                          config::in_quotes(new_name))));
}

Task<> RunTimeExports::set_rates(SetRates request, Completion completion) {
    const Change change = [&](config::ExportOptions& options) { options.rates = request.rates; };
    std::string text =
        fmt::format("The rates of export {} are changed.", config::in_quotes(request.name));
    completion(co_await set_options(request.name, change, std::move(text)));
}

Task<> RunTimeExports::set_read_only(SetReadOnly request, Completion completion) {
    const Change change = [&](config::ExportOptions& options) {
        options.provenance.made_read_only =
            request.read_only && (!options.read_only || options.provenance.made_read_only);
        options.read_only = request.read_only;
    };
    std::string text = fmt::format("Export {} is {} now.", config::in_quotes(request.name),
                                   request.read_only ? "read-only" : "writable");
    completion(co_await set_options(request.name, change, std::move(text)));
}

Task<Outcome> RunTimeExports::set_options(const std::string& name, const Change& change,
                                          std::string text) {
    if (!context_.exports.find(name)) {
        co_return NotDone{.why = fmt::format("there is no export {}; /api/v1/exports lists all",
                                             config::in_quotes(name)),
                          .unknown = true};
    }
    auto edit = co_await exports_.begin();
    if (!edit) co_return NotDone{edit.error()};
    const auto found = find_export(edit->options, name);
    if (found == edit->options.exports.end()) co_return NotDone{is_gone};
    change(edit->options.exports.edit(found));
    Expected<void> done = exports_.check(*edit);
    if (done) done = co_await exports_.make_and_publish(*edit);
    co_return outcome_of(done, std::move(text));
}

Task<> RunTimeExports::save(SaveExport request, Completion completion) {
    const std::shared_ptr<const Export> served = context_.exports.find(request.name);
    if (!served) co_return completion(NotDone{.why = unknown(request.name), .unknown = true});
    if (std::string why = served->why_incomplete(); !why.empty()) {
        co_return completion(NotDone{why});
    }
    const storage::ImageFormat format{.zstd = request.zstd, .threads = request.threads};
    completion(co_await saves_.save(served, request.file, format));
}

Task<> RunTimeExports::restore(RestoreExport request, Completion completion) {
    const std::shared_ptr<const Export> served = context_.exports.find(request.create.options.name);
    if (!served) {
        request.create.options.restore = request.file;
        co_await create(std::move(request.create), completion);
        co_return;
    }
    if (!request.only_name) {
        co_return completion(NotDone{fmt::format(
            "there is an export {} already, so its keys cannot be given; choose another name, or "
            "leave them out",
            config::in_quotes(served->info.name))});
    }
    if (std::string why = served->why_incomplete(); !why.empty()) {
        co_return completion(NotDone{why});
    }
    if (served->options.has_origin()) {
        co_return completion(NotDone{"its contents are those of its origin"});
    }
    completion(co_await saves_.restore(served, request.file));
    // A reload may have left out clones of it meanwhile.
    if (!context_.lifecycle.refuses_changes() && !exports_.refused().empty()) exports_.remake();
}

}  // namespace gpunbd::server
