"""Page texts of the sharing kit, in English, Japanese and Korean."""

from __future__ import annotations

from typing import Final

from keystead.kits.language import Messages

_ASK: Final = (
    "Ask the sender for a new link.",
    "送った人に新しいリンクを頼んでください。",
    "보낸 사람에게 새 링크를 요청하세요.",
)
_BROKEN: Final = (
    (
        "Part of it is missing, as happens when a long link is copied or wrapped. Paste the complete link here, or ask "
        "the sender to send it again."
    ),
    (
        "長いリンクをコピーしたときなどに、一部が失われたようです。"
        "リンク全体をここに貼り付けるか、もう一度送ってもらってください。"
    ),
    "긴 링크를 복사하는 과정 등에서 일부가 빠진 것 같습니다. 전체 링크를 여기에 붙여 넣거나 다시 보내 달라고 하세요.",
)


def _and_ask(*sentences: str) -> tuple[str, str, str]:
    english, japanese, korean = sentences
    return f"{english} {_ASK[0]}", f"{japanese}{_ASK[1]}", f"{korean} {_ASK[2]}"


# Each text in English, Japanese and Korean: the order of `LANGUAGES`.
MESSAGES: Final[Messages] = {
    # --- sharing a file
    "share_title": ("Share a file", "ファイルを共有", "파일 공유"),
    "share_lead": (
        (
            "Upload a file of up to {size} and send the link to the recipients. The file is deleted within {within} "
            "after the link expires."
        ),
        (
            "{size} までのファイルをアップロードし、渡したい相手にリンクを送ってください。"
            "リンクの期限が切れると、{within}以内にファイルが削除されます。"
        ),
        "최대 {size}의 파일을 올리고 받을 사람에게 링크를 보내세요. 링크가 만료되면 {within} 안에 파일이 삭제됩니다.",
    ),
    "no_script": (
        (
            "Uploading needs JavaScript, which is turned off. To upload from a shell instead, with your file for "
            "report.pdf:"
        ),
        (
            "このページのアップロードにはスクリプトが必要ですが、無効になっています。"
            "シェルからは次のように送れます(report.pdf は送るファイル):"
        ),
        (
            "이 페이지는 스크립트로 파일을 올리지만 스크립트가 꺼져 있습니다. "
            "셸에서는 다음과 같이 할 수 있습니다(report.pdf는 보낼 파일):"
        ),
    ),
    "shell_example": ("Shell example", "シェルの例", "셸 예시"),
    "no_script_answer": (
        "In the response, shareUrl is the link, and ownerKey can end it.",
        "応答の shareUrl がリンク、ownerKey がリンクを終了するためのキーです。",
        "응답의 shareUrl이 링크이고 ownerKey는 링크를 종료할 때 씁니다.",
    ),
    "choose_file": ("Choose a file", "ファイルを選ぶ", "파일 선택"),
    "or_drop": ("or drop it here", "またはここにドロップ", "또는 여기에 끌어다 놓기"),
    "issue_key": ("Issue key", "発行キー", "발급 키"),
    "issue_key_hint": (
        "Sharing files here requires this key. It stays in this page and is not stored.",
        "このキーを持つ人だけがファイルを共有できます。このページの中だけで使われ、保存されません。",
        "이 키가 있는 사람만 파일을 공유할 수 있습니다. 이 페이지에서만 쓰이며 저장되지 않습니다.",
    ),
    "expires_after": ("Expires after", "有効期間", "유효 기간"),
    "password": ("Password", "パスワード", "비밀번호"),
    "optional": ("optional", "任意", "선택"),
    "receiver": ("Recipient", "宛先の名前", "받는 사람"),
    "message_label": (
        "Message",
        "リンクを開く人へのひとこと",
        "링크를 여는 사람에게 남길 말",
    ),
    "single": ("Only one download", "ダウンロードは 1 回だけ", "다운로드 1회만 허용"),
    "single_hint": (
        "The link stops working after the first download. Viewing its page does not count.",
        "最初にダウンロードした人でリンクは使用済みになります。ページを見るだけなら数えません。",
        "처음 다운로드한 사람이 나오면 링크를 더 쓸 수 없습니다. 페이지를 보는 것은 다운로드가 아닙니다.",
    ),
    "upload": ("Upload and get the link", "アップロードしてリンクを作る", "올리고 링크 받기"),
    "uploading": ("Uploading", "アップロード中", "올리는 중"),
    "cancel": ("Cancel", "キャンセル", "취소"),
    "ready_title": ("The link is ready", "リンクができました", "링크가 준비되었습니다"),
    "ready_expires": ("It expires on", "有効期限", "만료"),
    "link": ("Link", "リンク", "링크"),
    "copy": ("Copy", "コピー", "복사"),
    "copy_link": ("Copy the link", "リンクをコピー", "링크 복사"),
    "note_single": ("It can be downloaded once.", "ダウンロードは 1 回だけです。", "한 번만 다운로드할 수 있습니다."),
    "note_password": (
        "It requires the password. Do not send the password together with the link.",
        "パスワードが必要です。リンクとは別の方法で伝えてください。",
        "비밀번호가 필요합니다. 링크와 다른 방법으로 알려 주세요.",
    ),
    "see_receiver": (
        "See what the recipient sees",
        "受け取る人に見える画面を開く",
        "받는 사람에게 보이는 화면 열기",
    ),
    "see_receiver_more": (
        ": viewing does not count as a download.",
        "(見るだけなら回数は減りません)",
        "(보기만 하면 횟수가 줄지 않습니다)",
    ),
    "in_my_links": (
        "You can find it again under My links.",
        "「マイリンク」からいつでも確認できます。",
        "'내 링크'에서 다시 볼 수 있습니다.",
    ),
    "owner_key": ("Owner key", "所有者キー", "소유자 키"),
    "copy_owner_key": ("Copy the owner key", "所有者キーをコピー", "소유자 키 복사"),
    "owner_key_hint": (
        "Keep this key to end the link before it expires. Do not send it to anyone. It is shown only once.",
        "期限前にリンクを終了するために保管してください。誰にも送らないでください。ここで一度だけ表示されます。",
        "만료 전에 링크를 종료하려면 보관해 두고 아무에게도 보내지 마세요. 지금 여기에서만 한 번 표시됩니다.",
    ),
    "share_another": ("Share another", "別のファイルを共有", "다른 파일 공유"),
    "end_this": ("End this link", "このリンクを終了", "이 링크 종료"),
    "sure": (
        "End the link now? It stops working, and its file is deleted.",
        "リンクを終了しますか?ファイルは削除され、誰も開けなくなります。",
        "링크를 종료할까요? 파일이 삭제되고 아무도 열 수 없게 됩니다.",
    ),
    "yes_end": ("Yes, end it", "はい、終了します", "네, 종료합니다"),
    "no_keep": ("No, keep it", "いいえ、残します", "아니요, 유지합니다"),
    "ended_title": ("The link has ended", "リンクを終了しました", "링크가 종료되었습니다"),
    "ended_lead": (
        "It no longer works, and its file is deleted.",
        "もう開けません。ファイルは削除されました。",
        "더 이상 열 수 없으며 파일이 삭제되었습니다.",
    ),
    "earlier": ("End a link that you shared earlier", "以前に共有したリンクを終了する", "전에 공유한 링크 종료하기"),
    "end_the_link": ("End the link", "リンクを終了", "링크 종료"),
    # --- my links
    "my_links": ("My links", "マイリンク", "내 링크"),
    "my_links_lead": (
        "The links that you created while signed in. Expired and ended links are not listed.",
        "サインイン中に作ったリンクです。期限が切れたリンクや終了したリンクは表示されません。",
        "로그인한 상태에서 만든 링크입니다. 만료되거나 종료된 링크는 표시되지 않습니다.",
    ),
    "in_use": ("In use: {used} of {quota}.", "使用量: {quota} 中 {used}", "사용량: {quota} 중 {used}"),
    "in_use_unlimited": ("In use: {used}.", "使用量: {used}", "사용량: {used}"),
    "no_links": ("You have no links.", "リンクはありません。", "링크가 없습니다."),
    "sign_in_first": (
        "Sign in to see your links.",
        "サインインすると、作ったリンクがここに表示されます。",
        "로그인하면 만든 링크를 여기에서 볼 수 있습니다.",
    ),
    "no_sign_in": (
        "This server has no sign-in. Anyone with the owner key of a link can manage it.",
        "このサーバーではサインインできないため、リンクは所有者キーを持つ人が管理します。",
        "이 서버에는 로그인할 수 없으므로 링크는 소유자 키를 가진 사람이 관리합니다.",
    ),
    "sign_in": ("Sign in", "サインイン", "로그인"),
    "downloads": ("Downloads", "ダウンロード", "다운로드"),
    "downloads_of": ("{count} of {most}", "{most} 回中 {count} 回", "{most}회 중 {count}회"),
    "expires": ("Expires", "有効期限", "만료"),
    "expires_in": ("in {left}", "あと{left}", "{left} 후"),
    "size": ("Size", "サイズ", "크기"),
    "for": ("For", "宛先", "받는 사람"),
    "has_password": ("It requires a password.", "パスワードが必要です。", "비밀번호가 필요합니다."),
    "not_ready": ("It is still being uploaded.", "アップロード中です。", "아직 올리는 중입니다."),
    "extend_to": ("Lifetime from now on", "今からの有効期間", "지금부터 유효 기간"),
    "extend": ("Extend", "延長", "연장"),
    "end": ("End", "終了", "종료"),
    "link_gone": (
        "You no longer have this link. It has expired or was ended.",
        "そのリンクはもうありません。期限が切れたか、終了しています。",
        "해당 링크가 더 이상 없습니다. 만료되었거나 종료되었습니다.",
    ),
    "link_not_later": (
        "The link already lasts longer than that.",
        "リンクの有効期限はすでにそれより先です。",
        "링크의 만료 시각이 이미 그보다 늦습니다.",
    ),
    "too_fast": (
        "Too many requests. Wait a minute, then try again.",
        "操作が速すぎます。1 分ほど待ってからもう一度お試しください。",
        "너무 빠릅니다. 1분 정도 기다린 뒤 다시 시도하세요.",
    ),
    # --- receiving
    "a_file_for_you": ("A file for you", "ファイルが届いています", "파일이 도착했습니다"),
    "a_file_for": ("A file for {name}", "{name} さんへのファイル", "{name} 님에게 온 파일"),
    "sender_wrote": ("The sender wrote", "送信者からのメッセージ", "보낸 사람의 메시지"),
    "downloads_left": ("Downloads left", "残りのダウンロード回数", "남은 다운로드 횟수"),
    "looking_is_free": (
        "Viewing this page does not count as a download.",
        "このページを見るだけなら回数は減りません。",
        "이 페이지를 보기만 하면 횟수가 줄지 않습니다.",
    ),
    "sender_knows": (
        "Ask the person who sent you the link.",
        "リンクを送った人に聞いてください。",
        "링크를 보낸 사람에게 물어보세요.",
    ),
    "download": ("Download", "ダウンロード", "다운로드"),
    "open_if_known": (
        "Open it only if you know who sent it. The file has not been scanned.",
        "送った人を知っている場合だけ開いてください。ファイルの中身は確認していません。",
        "보낸 사람을 아는 경우에만 여세요. 이 페이지는 파일 내용을 확인하지 않았습니다.",
    ),
    "started": (
        "Your download has started.",
        "ダウンロードを開始しました。",
        "다운로드를 시작했습니다.",
    ),
    "started_last": (
        "Your download has started. It was the last one for this link.",
        "ダウンロードを開始しました。このリンクで最後のダウンロードでした。",
        "다운로드를 시작했습니다. 이 링크의 마지막 다운로드였습니다.",
    ),
    "download_starts": ("Your download starts", "ダウンロードを開始します", "다운로드가 시작됩니다"),
    "comes_from": (
        "It comes from {host}.",
        "保管場所 {host} から届きます。",
        "{host}에 보관된 파일입니다.",
    ),
    "start_again": ("Start it again", "もう一度開始", "다시 시작"),
    "if_nothing": (
        "If nothing happens, use the button.",
        "何も起こらない場合は、ボタンを押してください。",
        "아무 일도 일어나지 않으면 버튼을 누르세요.",
    ),
    # --- refusals, by their code
    "PASSWORD_WRONG": (
        "Wrong password. Upper and lower case and spaces matter.",
        "パスワードが違います。大文字と小文字、空白も区別します。",
        "비밀번호가 다릅니다. 대소문자와 공백도 구분합니다.",
    ),
    "PASSWORD_REQUIRED": (
        "This link requires a password.",
        "このリンクにはパスワードが必要です。",
        "이 링크에는 비밀번호가 필요합니다.",
    ),
    "could_be_opened_until": ("It could be opened until", "開けた期限:", "열 수 있던 기한:"),
    "does_not_open": ("This link does not open", "このリンクは開けません", "이 링크를 열 수 없습니다"),
    "open": ("Open", "開く", "열기"),
    "try_again": ("Try again", "もう一度試す", "다시 시도"),
    "share_yourself": ("Share a file yourself", "自分もファイルを共有する", "나도 파일 공유하기"),
    "for_operator": ("For the operator of this site:", "サイト管理者向け:", "사이트 관리자용:"),
    "TOKEN_REQUIRED_heading": ("Open a link", "リンクを開く", "링크 열기"),
    "TOKEN_REQUIRED_advice": (
        "Paste the link that you received.",
        "受け取ったリンクを貼り付けてください。",
        "받은 링크를 붙여 넣으세요.",
    ),
    "TOKEN_NOT_FOUND_heading": ("Link not found", "このリンクは見つかりません", "이 링크를 찾을 수 없습니다"),
    "TOKEN_NOT_FOUND_advice": (
        (
            "It was ended, expired long ago, or is misspelled. Paste the complete link here, or ask the sender for a "
            "new one."
        ),
        (
            "終了したか、かなり前に期限が切れたか、文字が間違っています。"
            "リンク全体をここに貼り付けるか、送った人に新しいリンクを頼んでください。"
        ),
        (
            "종료되었거나 오래전에 만료되었거나 글자가 틀렸습니다. 전체 "
            "링크를 여기에 붙여 넣거나 보낸 사람에게 새 링크를 요청하세요."
        ),
    ),
    "INVALID_FORMAT_heading": ("This link is incomplete", "リンクが途中で切れています", "링크가 완전하지 않습니다"),
    "INVALID_FORMAT_advice": _BROKEN,
    "INVALID_BYTES_heading": ("This link is incomplete", "リンクが途中で切れています", "링크가 완전하지 않습니다"),
    "INVALID_BYTES_advice": _BROKEN,
    "INVALID_PAYLOAD_heading": ("This link was altered", "リンクが書き換えられています", "링크가 변경되었습니다"),
    "INVALID_PAYLOAD_advice": (
        "It was changed and no longer works. Paste the link that you received, or ask for a new one.",
        "作られたときと違うため開けません。受け取ったリンクを貼り付けるか、新しいリンクを頼んでください。",
        "만들어진 그대로가 아니어서 열 수 없습니다. 받은 링크를 붙여 넣거나 새 링크를 요청하세요.",
    ),
    "EXPIRED_heading": ("This link has expired", "リンクの有効期限が切れました", "링크가 만료되었습니다"),
    "EXPIRED_advice": _ASK,
    "USED_UP_heading": ("This link is used up", "リンクは使用済みです", "링크를 모두 사용했습니다"),
    "USED_UP_advice": _and_ask(
        "It has reached its download limit.",
        "ダウンロードできる回数に達しました。",
        "다운로드할 수 있는 횟수를 모두 썼습니다.",
    ),
    "REVOKED_heading": ("This link was ended", "リンクは終了しました", "링크가 종료되었습니다"),
    "REVOKED_advice": _and_ask(
        "The sender has ended the link, and the file is deleted.",
        "共有した人がリンクを終了し、ファイルは削除されました。",
        "파일을 공유한 사람이 링크를 종료하여 파일이 삭제되었습니다.",
    ),
    "HOST_NOT_ALLOWED_heading": ("This link is not allowed", "リンク先を開けません", "링크 대상을 열 수 없습니다"),
    "HOST_NOT_ALLOWED_advice": _and_ask(
        "The file is on a host that this site does not allow.",
        "ファイルの保管場所は、このサイトから案内できない場所です。",
        "파일이 이 사이트에서 안내하지 않는 곳에 보관되어 있습니다.",
    ),
    "NOT_READY_heading": ("This file is not ready yet", "ファイルはまだ準備中です", "파일이 아직 없습니다"),
    "NOT_READY_advice": (
        "It is still being uploaded. Try again in a moment.",
        "アップロード中です。しばらくしてからもう一度お試しください。",
        "아직 올리는 중입니다. 잠시 후 다시 시도하세요.",
    ),
    "TOO_MANY_GUESSES_heading": (
        "Too many wrong passwords",
        "パスワードを間違えた回数が多すぎます",
        "비밀번호를 너무 많이 틀렸습니다",
    ),
    "TOO_MANY_GUESSES_advice": (
        ("This link is locked for an hour. Ask the sender for the password, and try again then."),
        "推測を防ぐため、リンクを 1 時間ロックしました。送った人にパスワードを確認して、あとでもう一度お試しください。",
        "추측을 막기 위해 링크가 1시간 동안 잠겼습니다. 보낸 사람에게 비밀번호를 확인한 뒤 다시 시도하세요.",
    ),
    "RATE_LIMITED_heading": ("Too many requests", "操作が速すぎます", "요청이 너무 많습니다"),
    "RATE_LIMITED_advice": (
        "Too many requests from your network. Wait a minute, then try again.",
        "リクエストが多すぎます。1 分ほど待ってからもう一度お試しください。",
        "요청이 너무 많습니다. 1분 정도 기다린 뒤 다시 시도하세요.",
    ),
    "FILES_UNAVAILABLE_heading": (
        "Please try again in a moment",
        "しばらくしてからお試しください",
        "잠시 후 다시 시도하세요",
    ),
    "FILES_UNAVAILABLE_advice": (
        "The file storage cannot be reached. No download was counted.",
        "ファイルの保管場所に今は接続できません。回数は減っていません。",
        "지금은 파일 보관소에 연결할 수 없습니다. 횟수는 줄지 않았습니다.",
    ),
    "FILE_GONE_heading": ("The file is gone", "ファイルがありません", "파일이 없습니다"),
    "FILE_GONE_advice": _and_ask(
        "The file of this link was removed. No download was counted.",
        "このリンクのファイルは取り除かれました。回数は減っていません。",
        "이 링크의 파일이 제거되었습니다. 횟수는 줄지 않았습니다.",
    ),
}

# Texts for the script of the page that shares files.
SCRIPT: Final[Messages] = {
    "chooseFile": MESSAGES["choose_file"],
    "orDrop": MESSAGES["or_drop"],
    "chosen": (
        "{size}. Choose another, or drop it here.",
        "{size}。別のファイルを選ぶか、ここにドロップできます。",
        "{size}. 다른 파일을 선택하거나 여기에 끌어다 놓으세요.",
    ),
    "emptyFile": (
        "This file is empty. Choose another.",
        "ファイルが空です。別のファイルを選んでください。",
        "빈 파일입니다. 다른 파일을 선택하세요.",
    ),
    "largeFile": (
        "This file has {size}; the limit is {most}.",
        "このファイルは {size} です。{most} まで送れます。",
        "이 파일은 {size}입니다. 최대 {most}까지 받습니다.",
    ),
    "folder": (
        "That is a folder, and a link is for one file. Share it as a ZIP file.",
        "フォルダーです。リンクは 1 つのファイルにつながります。ZIP にまとめて共有してください。",
        "폴더입니다. 링크는 파일 하나로 연결됩니다. ZIP으로 묶어 공유하세요.",
    ),
    "severalFiles": (
        "A link is for one file. Share several files as a ZIP file.",
        "複数のファイルです。リンクは 1 つのファイルにつながります。ZIP にまとめて共有してください。",
        "파일이 여러 개입니다. 링크는 파일 하나로 연결됩니다. ZIP으로 묶어 공유하세요.",
    ),
    "chooseFirst": ("Choose a file first.", "先にファイルを選んでください。", "먼저 파일을 선택하세요."),
    "keyNeeded": (
        "Enter the issue key.",
        "リンクの発行には発行キーが必要です。",
        "링크를 발급하려면 발급 키가 필요합니다.",
    ),
    "keyWrong": ("Wrong issue key.", "発行キーが違います。", "발급 키가 아닙니다."),
    "quota": (
        "You are using {used} of {quota}. End a link that you no longer need, or wait until one expires.",
        "{quota} 中 {used} を使用しています。不要なリンクを終了するか、期限が切れるまでお待ちください。",
        "{quota} 중 {used}를 사용하고 있습니다. 필요 없는 링크를 종료하거나 만료될 때까지 기다리세요.",
    ),
    "full": (
        "There is not enough storage for this file. Try again when other files have expired.",
        "今はこのファイルを保管する空きがありません。ほかのファイルの期限が切れてからもう一度お試しください。",
        "지금은 이 파일을 보관할 공간이 없습니다. 다른 파일이 만료된 뒤 다시 시도하세요.",
    ),
    "tooOften": (
        "Too many uploads from your network. Try again in {seconds} seconds.",
        "アップロードが多すぎます。{seconds} 秒後にもう一度お試しください。",
        "파일을 너무 많이 보냈습니다. {seconds}초 후 다시 시도하세요.",
    ),
    "tooLarge": (
        "This file is too large; the limit is {most}.",
        "ファイルが大きすぎます。{most} まで送れます。",
        "파일이 너무 큽니다. 최대 {most}까지 받습니다.",
    ),
    "elsewhere": (
        "The address of this page has changed. Reload it and try again.",
        "ページのアドレスが変わりました。再読み込みしてもう一度お試しください。",
        "페이지 주소가 바뀌었습니다. 다시 불러온 뒤 시도하세요.",
    ),
    "answered": (
        "The server responded with {status}. Nothing was shared; try again in a moment.",
        "サーバーが {status} を返しました。何も共有されていません。しばらくしてからもう一度お試しください。",
        "서버가 {status}로 응답했습니다. 공유된 것은 없습니다. 잠시 후 다시 시도하세요.",
    ),
    "broke": (
        "The connection broke, or the file has changed. Nothing was shared; try again.",
        "接続が切れたか、ファイルが変更されました。何も共有されていません。もう一度お試しください。",
        "연결이 끊겼거나 파일이 변경되었습니다. 공유된 것은 없습니다. 다시 시도하세요.",
    ),
    "allSent": (
        "Upload complete. Creating the link…",
        "送信が終わりました。リンクを作成しています…",
        "모두 보냈습니다. 링크를 만드는 중…",
    ),
    "progress": (
        "{percent} %: {sent} of {size}",
        "{percent} %: {size} 中 {sent}",
        "{percent} %: {size} 중 {sent}",
    ),
    "seconds": ("{count} seconds", "{count} 秒", "{count}초"),
    "left": (", {left} left", "、残り {left}", ", {left} 남음"),
    "heard": ("{percent} per cent uploaded", "{percent} パーセント送信済み", "{percent} 퍼센트 올림"),
    "copy": MESSAGES["copy"],
    "copied": ("Copied", "コピーしました", "복사됨"),
    "whatCopied": ("{what} copied", "{what}をコピーしました", "{what} 복사됨"),
    "whatSelected": (
        "{what} is selected: copy it with the keyboard",
        "{what}を選択しました。キーボードでコピーしてください",
        "{what} 선택됨: 키보드로 복사하세요",
    ),
    "endUnreachable": (
        "The server cannot be reached. The link is unchanged; try again.",
        "サーバーに接続できません。リンクはそのままです。もう一度お試しください。",
        "서버에 연결할 수 없습니다. 링크는 그대로입니다. 다시 시도하세요.",
    ),
    "tooFast": (
        "Too many requests. Try again in {seconds} seconds.",
        "操作が速すぎます。{seconds} 秒後にもう一度お試しください。",
        "너무 빠릅니다. {seconds}초 후 다시 시도하세요.",
    ),
    "noSuchLink": (
        "This link does not exist: it has expired or was already ended.",
        "そのリンクはありません。期限が切れたか、すでに終了しています。",
        "해당 링크가 없습니다. 만료되었거나 이미 종료되었습니다.",
    ),
    "pasteLink": (
        "Paste the link that you shared.",
        "共有したリンクを貼り付けてください。",
        "공유한 링크를 붙여 넣으세요.",
    ),
    "pasteKey": (
        "Paste the owner key that came with the link.",
        "リンクと一緒に表示された所有者キーを貼り付けてください。",
        "링크와 함께 표시된 소유자 키를 붙여 넣으세요.",
    ),
    "endedEarlier": (
        "The link has ended, and its file is deleted.",
        "リンクを終了し、ファイルを削除しました。",
        "링크가 종료되고 파일이 삭제되었습니다.",
    ),
}
