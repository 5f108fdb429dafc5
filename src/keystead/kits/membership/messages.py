"""Texts of the try page in English, Japanese and Korean."""

from __future__ import annotations

from typing import Final

from keystead.kits.language import Messages

# In the order of `LANGUAGES`.
MESSAGES: Final[Messages] = {
    "title": ("Try a membership", "メンバーシップを試す", "멤버십 체험"),
    "lead": (
        (
            "Here you play a patron's desktop app. Sign in at the demo provider, which stands in for Patreon, and "
            "press the app's buttons. Each one sends a real request to this server."
        ),
        (
            "ここでは支援者のデスクトップアプリの役をします。Patreon の代わりのデモプロバイダーでサインインし、"
            "アプリが行う操作のボタンを押してください。どのボタンもこのサーバーに実際のリクエストを送ります。"
        ),
        (
            "여기서는 후원자의 데스크톱 앱 역할을 합니다. Patreon을 대신하는 데모 제공자에서 로그인하고 "
            "앱이 하는 동작의 버튼을 누르세요. 각 버튼은 이 서버에 실제 요청을 보냅니다."
        ),
    ),
    "no_script": (
        "This page needs JavaScript, which is turned off. The requests of an app are in the",
        "このページはスクリプトで動作しますが、ここではスクリプトが無効です。アプリが送る内容はこちらにあります:",
        "이 페이지는 스크립트로 동작하는데 여기서는 스크립트가 꺼져 있습니다. 앱이 보내는 내용은 여기에 있습니다:",
    ),
    "signed_in_as": ("You are signed in as {name}", "{name} としてサインインしています", "{name}(으)로 로그인했습니다"),
    "already_signed_in": (
        "The app asks the demo provider for your plan. You do not have to sign in again.",
        "アプリはデモプロバイダーに支払い状況を尋ねます。もう一度サインインする必要はありません。",
        "앱이 데모 제공자에게 결제 상태를 묻습니다. 다시 로그인할 필요는 없습니다.",
    ),
    "continue_as": ("Continue as {name}", "{name} として続ける", "{name}(으)로 계속"),
    "someone_else": ("Sign in as someone else", "別の人としてサインイン", "다른 사람으로 로그인"),
    "not_signed_in": ("You are not signed in", "誰もサインインしていません", "로그인한 사람이 없습니다"),
    "no_password": (
        (
            "There is no password: choose a person, and you return here as that person. Each pays a different amount, "
            "so each has a different plan."
        ),
        (
            "パスワードはありません。誰かを選ぶと、その人としてここに戻ります。支払う金額が違うので、"
            "プランもそれぞれ異なります。"
        ),
        "비밀번호는 없습니다. 사람을 고르면 그 사람으로 여기에 돌아옵니다. 결제 금액이 달라 플랜도 서로 다릅니다.",
    ),
    "sign_in_there": ("Sign in at the demo provider", "デモプロバイダーでサインイン", "데모 제공자에서 로그인"),
    "plan": ("Plan", "プラン", "플랜"),
    "at_the_provider": ("At the provider", "プロバイダーでの状態", "제공자에서의 상태"),
    "session_ends": ("Session ends", "セッションの終了", "세션 종료"),
    "quota": ("Monthly quota", "今月の利用枠", "이번 달 사용량"),
    "session_token": ("Session token", "セッショントークン", "세션 토큰"),
    "show": ("Show", "表示", "표시"),
    "copy": ("Copy", "コピー", "복사"),
    "copy_token": ("Copy the session token", "セッショントークンをコピー", "세션 토큰 복사"),
    "copy_command": ("Copy the command", "コマンドをコピー", "명령 복사"),
    "change_pledge": ("Change what they pay", "支払い額を変更", "결제 금액 변경"),
    "webhook": (
        "The provider sends this server a webhook, which clears the cached plan immediately.",
        "プロバイダーは Webhook でこのサーバーに知らせ、記憶していた内容はすぐに破棄されます。",
        "제공자가 웹훅으로 이 서버에 알리고, 기억하던 내용은 바로 버려집니다.",
    ),
    "devices": ("Devices", "デバイス", "기기"),
    "another_device": ("Sign in on another device", "別のデバイスでサインイン", "다른 기기에서 로그인"),
    "one_device": (
        "A member can use one device at a time: signing in on another signs this one out.",
        "メンバーのデバイスは 1 台です。別のデバイスでサインインすると、このデバイスはサインアウトされます。",
        "회원의 기기는 하나입니다. 다른 기기에서 로그인하면 이 기기는 로그아웃됩니다.",
    ),
    "requests": ("Requests of an app", "アプリが尋ねること", "앱이 묻는 것"),
    "validate": ("Validate", "検証", "검증"),
    "validate_line": ("Is the session valid?", "セッションは有効ですか?", "세션이 유효한가요?"),
    "sync": ("Sync", "同期", "동기화"),
    "sync_line": ("Ask the provider now.", "今すぐプロバイダーに尋ねます。", "지금 제공자에게 묻습니다."),
    "tokens": ("Get tokens", "トークンを取得", "토큰 받기"),
    "tokens_line": ("Access for one hour, and its renewal.", "1 時間分と、その次の分。", "1시간 분과 그다음 분."),
    "refresh": ("Refresh", "更新", "갱신"),
    "refresh_line": ("The next pair of tokens.", "次のトークンの組。", "다음 토큰 한 쌍."),
    "logout": ("Sign out", "サインアウト", "로그아웃"),
    "logout_line": ("End this session.", "このセッションを終了します。", "이 세션을 끝냅니다."),
    "revoke_all": ("Revoke all", "すべて失効", "모두 폐기"),
    "revoke_all_line": (
        "End all sessions of this member.",
        "このメンバーのすべてを終了します。",
        "이 회원의 세션을 모두 끝냅니다.",
    ),
    "press_a_button": (
        "Press a button to see the response, and the command that sends the same request.",
        "ボタンを押すと、応答と、シェルで同じことをするコマンドが表示されます。",
        "버튼을 누르면 응답과 셸에서 같은 일을 하는 명령이 표시됩니다.",
    ),
    "answer": ("Response", "応答", "응답"),
    "from_a_shell": ("The same request from a shell", "シェルで同じことをするには", "셸에서 같은 일을 하려면"),
    "shortened": (
        "Tokens are shortened here until you show the session token. Copied text is complete.",
        "セッショントークンを表示するまで、ここではトークンを短く表示します。コピーした内容は省略されません。",
        "세션 토큰을 표시하기 전까지 여기서는 토큰을 줄여서 보여 줍니다. 복사한 내용은 줄이지 않은 전체입니다.",
    ),
}

# Texts for the script of the page, which fills in `{name}` itself.
SCRIPT: Final[Messages] = {
    "cancelled": (
        "You cancelled the sign-in. Nothing has changed.",
        "サインインをキャンセルしたので、何も変わっていません。",
        "로그인을 취소했으므로 바뀐 것이 없습니다.",
    ),
    "refusedSignIn": (
        "The provider refused the sign-in. Try again.",
        "プロバイダーがサインインを拒否しました。もう一度お試しください。",
        "제공자가 로그인을 거부했습니다. 다시 시도하세요.",
    ),
    "otherTab": (
        "This sign-in was not started in this tab. Sign in again.",
        "このサインインはこのタブで始めたものではありません。もう一度サインインしてください。",
        "이 로그인은 이 탭에서 시작되지 않았습니다. 다시 로그인하세요.",
    ),
    "isSignedIn": (
        "{name} is signed in with the plan {plan}.",
        "{name} さんがサインインしました。プランは {plan} です。",
        "{name} 님이 로그인했습니다. 플랜은 {plan}입니다.",
    ),
    "validateDone": (
        "The session is valid, and the plan is {plan}.",
        "セッションは有効で、プランは {plan} です。",
        "세션이 유효하고 플랜은 {plan}입니다.",
    ),
    "syncDone": (
        "The provider just reported the plan {plan}.",
        "たった今プロバイダーに尋ねたところ、{plan} でした。",
        "방금 제공자에게 물었더니 {plan}입니다.",
    ),
    "tokensDone": (
        "An access token for {minutes} minutes, and a refresh token for the next pair.",
        "{minutes} 分間有効なアクセストークンと、次の組のためのリフレッシュトークンです。",
        "{minutes}분 동안 유효한 액세스 토큰과 다음 한 쌍을 위한 리프레시 토큰입니다.",
    ),
    "refreshDone": (
        "The next pair. The previous refresh token stops working after 30 seconds.",
        "次の組です。送ったリフレッシュトークンは 30 秒後に無効になります。",
        "다음 한 쌍입니다. 보낸 리프레시 토큰은 30초 후에 무효가 됩니다.",
    ),
    "logoutDone": (
        "The session has ended, with its tokens.",
        "セッションと、そのトークンが終了しました。",
        "세션과 그 토큰이 끝났습니다.",
    ),
    "revokeAllDone": (
        "All sessions of this user have ended: {count}.",
        "このユーザーのすべてのセッションが終了しました: {count}。",
        "이 사용자의 모든 세션이 끝났습니다: {count}.",
    ),
    "noAnswer": (
        "The server does not answer. Is it still running?",
        "サーバーが応答しません。まだ動いていますか?",
        "서버가 응답하지 않습니다. 아직 실행 중인가요?",
    ),
    "refused": ("The server refused.", "サーバーが拒否しました。", "서버가 거부했습니다."),
    "noRefreshToken": (
        "There is no refresh token yet. Get tokens first.",
        "リフレッシュトークンがまだありません。先にトークンを取得してください。",
        "아직 리프레시 토큰이 없습니다. 먼저 토큰을 받으세요.",
    ),
    "hide": ("Hide", "隠す", "숨기기"),
    "show": MESSAGES["show"],
    "statusNone": ("no answer", "応答なし", "응답 없음"),
    "statusNotSent": ("not sent", "未送信", "보내지 않음"),
    "noTokensInPlan": (
        "This plan has no tokens; {used} were used in {month}.",
        "このプランにトークンはありません。{month}に {used} を使いました。",
        "이 플랜에는 토큰이 없습니다. {month}에 {used}개를 썼습니다.",
    ),
    "tokensUsed": (
        "{used} of {limit} tokens used in {month}.",
        "{month}は {limit} トークン中 {used} を使いました。",
        "{month}에 {limit}토큰 중 {used}토큰을 썼습니다.",
    ),
    "active_patron": ("Active patron", "支払い中", "결제 중"),
    "declined_patron": ("Payment declined", "支払い拒否", "결제 거부됨"),
    "former_patron": ("Former patron", "支払い終了", "결제 종료"),
    "not_patron": ("Not a patron", "支払いなし", "결제 없음"),
    "planNow": (
        "The plan is now {plan}. It was {before}.",
        "プランは {plan} になりました。以前は {before} でした。",
        "플랜이 {plan}(으)로 바뀌었습니다. 전에는 {before}였습니다.",
    ),
    "anotherDevice": MESSAGES["another_device"],
    "signInAgain": ("Sign in again", "もう一度サインイン", "다시 로그인"),
    "deviceNamed": ("Device {number}: {name}", "デバイス {number}: {name}", "기기 {number}: {name}"),
    "deviceSignedIn": ("200 signed in", "200 サインイン中", "200 로그인됨"),
    "validate": MESSAGES["validate"],
    "validateDevice": ("Validate device {number}", "デバイス {number} を検証", "기기 {number} 검증"),
    "signedOut": ("signed out", "サインアウト済み", "로그아웃됨"),
    "signedIn": ("signed in", "サインイン中", "로그인됨"),
    "nextOn": (", next charge on {date}", "、次回 {date}", ", 다음 결제 {date}"),
    "hasEnded": ("ended", "終了しました", "끝났습니다"),
    "changePledgeOf": ("Change what {name} pays", "{name} さんの支払い額を変更", "{name} 님의 결제 금액 변경"),
    "copy": MESSAGES["copy"],
    "copied": ("Copied", "コピーしました", "복사됨"),
    "cannotCopy": (
        "This browser does not allow the page to copy. Show the token and select it.",
        "このブラウザーではページからコピーできません。トークンを表示して選択してください。",
        "이 브라우저에서는 페이지가 복사할 수 없습니다. 토큰을 표시해서 선택하세요.",
    ),
}
