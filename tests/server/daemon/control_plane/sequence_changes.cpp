#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/server/daemon/control_plane/disk.hpp"
#include "tests/server/daemon/control_plane/page_contents.hpp"
#include "tests/server/daemon/control_plane/sequence.hpp"

namespace gpunbd::server::test {

using std::to_string;

namespace {

// 0: there is no such file.
ino_t inode_of(const std::string& path) {
    struct stat file {};
    return ::stat(path.c_str(), &file) == 0 ? file.st_ino : 0;
}

}  // namespace

std::function<void(const Completion&)> Sequence::changing(ExportRequest request) {
    return [this, request = std::move(request)](const Completion& completion) {
        server_->run_time_exports->perform(request, completion);
    };
}

config::ExportOptions Sequence::options_of(const std::string& name, bool keep) {
    config::ExportOptions options;
    options.name = name;
    options.page_size = model_page;
    options.devices = {"host"};
    options.keep = keep;
    return options;
}

std::optional<Step> Sequence::create() {
    const std::string name = free_name();
    if (name.empty()) return std::nullopt;
    const bool keep = keeps_ && chance(0.7);
    const std::uint64_t count = chance(0.3) ? 32 : 16;
    config::ExportOptions options = options_of(name, keep);
    options.size = config::Size{.bytes = count * model_page};
    return Step{
        .text = "create " + name + " of " + to_string(count) + " pages" + (keep ? ", kept" : ""),
        .begin = changing(CreateExport{.options = options}),
        .effect =
            [=](Model& model) {
                model.exports[name] = {.pages = ModelPages(count),
                                       .keep = keep,
                                       .run_time = true,
                                       .configured_pages = count};
                model.may_take_kept(name);
            },
        .expected_done = model_.kept.contains(name) ? std::nullopt : std::optional(true),
        .name = name};
}

std::optional<Step> Sequence::remove() {
    const std::string name =
        any_export([](const std::string& its, const ModelExport&) { return its != "base"; });
    if (name.empty()) return std::nullopt;
    return removal(name, chance(0.4));
}

Step Sequence::removal(const std::string& name, bool keep_contents) {
    const ModelExport& its = model_.exports[name];
    return {.text = "remove " + name + (keep_contents ? ", keep its contents" : ""),
            .begin = changing(RemoveExport{.name = name, .keep_contents = keep_contents}),
            .effect =
                [=](Model& model) {
                    if (keep_contents) model.kept[name].emplace_back(model.exports.at(name));
                    model.exports.erase(name);
                },
            .expected_done =
                its.run_time && (!keep_contents || its.keep) && !model_.has_templates_of(name),
            .name = name};
}

std::optional<Step> Sequence::clone() {
    const std::string source = any_export();
    return clone_of(source, free_name());
}

ModelExport Sequence::cloned(const ModelExport& source, bool read_only) {
    ModelExport clone = source;
    clone.read_only = read_only;
    clone.run_time = clone.is_clone = true;
    clone.restored_from.clear();
    clone.configured_pages = clone.pages.size();
    return clone;
}

std::optional<Step> Sequence::clone_of(const std::string& source, const std::string& name) {
    if (source.empty() || name.empty()) return std::nullopt;
    config::ExportOptions options;
    options.name = name;
    options.clone_of = source;
    options.read_only = chance(0.5);
    return Step{.text = (options.read_only ? "snapshot " : "clone ") + source + " " + name,
                .begin = changing(CreateExport{.options = options}),
                .effect =
                    [=](Model& model) {
                        model.exports[name] = cloned(model.exports.at(source), options.read_only);
                        model.kept.erase(name);
                    },
                .expected_done = true,
                .name = name};
}

// A client writes one page after the other meanwhile. The clone has all writes up to one of them.
// For the write in progress it may have a page of its own, with the contents before or a part of
// what is written.
void Sequence::clone_during_writes() {
    const std::string source =
        any_export([](const std::string&, const ModelExport& each) { return !each.read_only; });
    std::optional<Step> step = clone_of(source, free_name());
    if (!step) return;
    struct Write {
        std::uint64_t page = 0;
        ModelPage written = {};
        bool done = false;
    };
    std::vector<Write> writes(50);
    ModelPages& pages = model_.exports[source].pages;
    for (Write& each : writes) each = {.page = up_to(pages.size() - 1), .written = new_page()};
    const bool read_only = step->text.starts_with("snapshot");
    const std::string clone = step->name;
    step->text += " while a client writes";
    Candidates candidates{cloned(model_.exports[source], read_only)};
    step->effect = [&](Model& model) {
        model.undecided[clone] = candidates;
        model.kept.erase(clone);
    };
    std::jthread client([&writes, volume = served(source)->volume] {
        for (Write& each : writes) {
            each.done = write_page(*volume, each.page, each.written.contents);
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    });
    const Submitted submitted = submit(*std::move(step));
    wait_for(submitted);
    client.join();
    server_->settle();
    for (const Write& each : writes) {
        if (!each.done) continue;
        ModelExport during = candidates.back().value();
        during.pages[each.page] = {.contents = torn_page, .id = new_page().id};
        candidates.emplace_back(std::move(during));
        pages[each.page] = each.written;
        candidates.emplace_back(cloned(model_.exports[source], read_only));
    }
    apply_answer(submitted);
    ++extra_pages_;
}

std::optional<Step> Sequence::add_template() {
    const std::string source = any_export([](const std::string&, const ModelExport& each) {
        return each.run_time && !each.is_clone && !each.read_only;
    });
    const std::string name = "t" + source;
    if (source.empty() || model_.templates.contains(name)) return std::nullopt;
    config::ExportOptions options;
    options.name = name;
    options.clone_per_client.of = source;
    options.clone_per_client.name = config::ClientId::machine;
    return Step{.text = "template " + name,
                .begin = changing(CreateExport{.options = options}),
                .effect = [=](Model& model) { model.templates[name] = source; },
                .expected_done = true};
}

std::optional<Step> Sequence::client_clone() {
    const auto [its_template, source] = any_of(model_.templates);
    if (model_.closed.contains(source)) return std::nullopt;
    return client_clone_of(its_template, source);
}

std::optional<Step> Sequence::client_clone_of(const std::string& its_template,
                                              const std::string& source) {
    const std::string client = "m" + to_string(up_to(2));
    const std::string name = its_template + "/" + client;
    if (model_.exports.contains(name)) return std::nullopt;
    const auto begin = [=, this](const Completion& completion) {
        const auto answer = [completion](const std::string& why_not) {
            completion(why_not.empty() ? Outcome(Done{}) : Outcome(NotDone{why_not}));
        };
        server_->context.exports.clone_requests().send({.template_name = its_template,
                                                        .client = client,
                                                        .peer = "a client",
                                                        .answer = answer});
    };
    return Step{.text = "client clone " + name,
                .begin = begin,
                .effect =
                    [=](Model& model) {
                        model.exports[name] = cloned(model.exports.at(source), false);
                        model.kept.erase(name);
                    },
                .expected_done = true,
                .name = name};
}

std::optional<Step> Sequence::resize() {
    const std::string name = any_export();
    if (name.empty()) return std::nullopt;
    const ModelExport& its = model_.exports[name];
    std::uint64_t count = std::max<std::uint64_t>(10, its.pages.size() + up_to(16)) - 8;
    if (chance(0.2)) count = its.configured_pages;
    const bool discard = chance(0.5);
    const bool is_snapshot = its.is_clone && its.read_only;
    return Step{.text = "resize " + name + " to " + to_string(count) + " pages" +
                        (discard ? ", discard" : ""),
                .begin = changing(
                    ResizeExport{.name = name, .size = count * model_page, .discard = discard}),
                .effect = [=](Model& model) { model.exports.at(name).resize(count); },
                .expected_done = !is_snapshot && (discard || !its.has_data_from(count)),
                .name = name};
}

std::optional<Step> Sequence::save() {
    const std::string name = any_export();
    if (name.empty()) return std::nullopt;
    const bool zstd = chance(0.5);
    const std::string path = folder_ + "/image-" + (chance(0.5) ? "x" : "y") + (zstd ? ".zst" : "");
    const bool fails = chance(0.3);
    const std::uint64_t call = up_to(4);
    if (fails) disk::fail(disk::Call::write, call);
    return Step{
        .text = "save " + name + " to " + path.substr(folder_.size()) +
                (fails ? ", write " + to_string(call) + " fails" : ""),
        .begin = changing(SaveExport{.name = name, .file = path, .zstd = zstd}),
        .effect =
            [=, this, pages = model_.exports[name].pages](Model&) {
                if (fails && disk::has_failed()) {
                    throw Violation("a save is done although its writes have failed");
                }
                files_[path] = pages;
            },
        .expected_done = true,
        .interrupted =
            [=, this, before = inode_of(path), pages = model_.exports[name].pages] {
                if (inode_of(path) == before) return;
                if (fails && disk::has_failed()) {
                    throw Violation("a save has replaced its file although its writes have failed");
                }
                files_[path] = pages;
            }};
}

// Into a new export, or into an empty one.
std::optional<Step> Sequence::restore() {
    const auto [path, pages] = any_of(files_);
    const std::uint64_t count = pages.size();
    const std::string empty = any_export([&](const std::string&, const ModelExport& each) {
        return each.is_empty() && each.pages.size() >= count && !each.is_clone;
    });
    const std::string kept = free_name(true);
    const std::string fresh = kept.empty() || chance(0.3) ? free_name() : kept;
    const bool exists = !empty.empty() && (fresh.empty() || chance(kept.empty() ? 0.5 : 0.2));
    if (!exists && fresh.empty()) return std::nullopt;
    return restore_of(path, exists ? empty : fresh, exists, keeps_ && chance(0.7));
}

Step Sequence::restore_of(const std::string& path, const std::string& name, bool exists,
                          bool keep) {
    config::ExportOptions options;
    options.name = name;
    if (!exists) options = options_of(name, keep);
    return {.text = "restore " + path.substr(folder_.size()) + " to " + (exists ? "" : "new ") +
                    name + (keep && !exists ? ", kept" : ""),
            .begin = changing(
                RestoreExport{.file = path, .create = {.options = options}, .only_name = exists}),
            .effect =
                [=, this, pages = files_[path]](Model& model) {
                    if (!exists) {
                        model.exports[name] = {.pages = ModelPages(pages.size()),
                                               .keep = keep,
                                               .run_time = true,
                                               .restored_from = path,
                                               .configured_pages = pages.size()};
                        model.kept.erase(name);
                    }
                    ModelPages& its = model.exports.at(name).pages;
                    const std::size_t count = its.size();
                    its = copies(pages);
                    its.resize(count);
                },
            .expected_done = true,
            .name = name};
}

std::optional<Step> Sequence::drop() {
    const std::string name = model_.kept.empty() ? "base" : any_of(model_.kept).first;
    return Step{.text = "drop " + name,
                .begin =
                    [=, this](const Completion& completion) {
                        server_->queries->answer({.drop = name, .completion = completion});
                    },
                .effect = [=](Model& model) { model.kept.erase(name); },
                .expected_done = model_.kept.contains(name),
                .name = name};
}

void Sequence::pass_grace_period() {
    if (!keeps_) return;
    log("the grace period passes");
    std::vector<KeptContents::Offered> offered;
    const auto exports = server_->context.exports.snapshot();
    for (const auto& each : *exports) {
        offered.push_back({each->info.name, each->options.keep, each->volume});
    }
    const auto grace = std::chrono::seconds(3600);
    server_->context.kept.contents->settle(offered, grace, KeptContents::Clock::now() + 2 * grace);
    model_.kept.clear();
}

void Sequence::reclaim() {
    if (keeps_) return;
    const std::uint64_t count = any_of(std::vector<std::uint64_t>{4, 16, 128});
    const bool timed = chance(0.3);
    log("reclaim " + to_string(count) + " pages" + (timed ? " for no time" : ""));
    const auto answer = std::make_shared<Answer>(supervisor_);
    ReclaimRequest request{.bytes = count * model_page};
    if (timed) request.duration = std::chrono::seconds(0);
    server_->reclaim->reclaim(
        request, Completion([answer](Outcome outcome) { answer->set(std::move(outcome)); }));
    server_->run_until([&] { return answer->has_value(); });
    const Outcome outcome = answer->value();
    const auto* const reclaimed = std::get_if<Reclaimed>(&outcome);
    if (reclaimed == nullptr) throw Violation("a reclaim is refused");
    const auto claim = reclaimed->devices.at(0).claim;
    if (!claim) return;
    if (!timed) return void(model_.claims.insert(*claim));
    server_->run_until([&] {
        DeviceStatus status{.id = "host"};
        server_->reclaim->add_to(status);
        const bool ended = std::ranges::none_of(
            status.claims, [&](const ClaimStatus& each) { return each.id == *claim; });
        return ended && (!status.claims.empty() || !status.limit);
    });
}

std::optional<Step> Sequence::end_reclaim() {
    if (keeps_) return std::nullopt;
    const auto claim =
        model_.claims.empty() || chance(0.5) ? std::nullopt : std::optional(any_of(model_.claims));
    return Step{
        .text = "end of " + (claim ? "claim " + to_string(*claim) : "all claims"),
        .begin =
            [=, this](const Completion& completion) {
                server_->reclaim->end({.claim = claim}, completion);
            },
        .effect =
            [=](Model& model) { claim ? void(model.claims.erase(*claim)) : model.claims.clear(); },
        .expected_done = true};
}

void Sequence::write() {
    const std::string name =
        any_export([](const std::string&, const ModelExport& each) { return !each.read_only; });
    if (name.empty()) return;
    log("write " + name);
    ModelPages& pages = model_.exports[name].pages;
    storage::Volume& volume = *served(name)->volume;
    for (std::uint64_t i = up_to(5) + 1; i != 0; --i) {
        const std::uint64_t number = up_to(pages.size() - 1);
        if (chance(0.3)) {
            volume.unmap(number);
            pages[number] = {};
            continue;
        }
        const ModelPage written = new_page();
        if (!write_page(volume, number, written.contents)) continue;  // beyond the limit
        pages[number] = written;
    }
}

}  // namespace gpunbd::server::test
